//! Questions and answers, without a connection.

use super::*;

fn files() -> Arc<Files> {
    Reflection::of(&[proto::FILE_DESCRIPTOR_SET, v1alpha::FILE_DESCRIPTOR_SET]).unwrap().0
}

fn ask(question: MessageRequest) -> MessageResponse {
    let request = ServerReflectionRequest { host: "here".to_owned(), message_request: Some(question) };
    let answer = files().answer(request.clone());
    assert_eq!((answer.valid_host.as_str(), answer.original_request), ("here", Some(request)));
    answer.message_response.unwrap()
}

fn file_with(symbol: &str) -> Option<String> {
    match ask(MessageRequest::FileContainingSymbol(symbol.to_owned())) {
        MessageResponse::FileDescriptorResponse(files) => {
            let file = prost_types::FileDescriptorProto::decode(files.file_descriptor_proto[0].as_slice()).unwrap();
            Some(file.name().to_owned())
        }
        MessageResponse::ErrorResponse(error) => {
            assert_eq!(error.error_code, Code::NotFound as i32, "{error:?}");
            None
        }
        other @ (MessageResponse::AllExtensionNumbersResponse(_) | MessageResponse::ListServicesResponse(_)) => {
            panic!("{other:?}")
        }
    }
}

#[test]
fn every_symbol_is_found_in_its_file_and_no_other_is() {
    let admin = "ownergraph.admin.v1beta1";
    for symbol in ["AdminService", "AdminService.GetStatus", "Pause", "Pause.name", "DecisionLogStatus.STATE_AWAY"] {
        let found = file_with(&format!("{admin}.{symbol}"));
        assert_eq!(found.as_deref(), Some("ownergraph/admin/v1beta1/admin_service.proto"), "{symbol}");
    }
    assert_eq!(file_with("ownergraph.Unheard"), None);
    assert_eq!(file_with(&"x".repeat(60_000)), None);
}

#[test]
fn files_and_services_are_listed_and_the_rest_is_an_answer_too() {
    let MessageResponse::ListServicesResponse(list) = ask(MessageRequest::ListServices(String::new())) else {
        panic!()
    };
    let names: Vec<String> = list.service.into_iter().map(|service| service.name).collect();
    for name in ["ownergraph.graph.v1beta1.GraphService", "grpc.reflection.v1alpha.ServerReflection"] {
        assert!(names.iter().any(|known| known == name), "{names:?}");
    }
    let extension = ExtensionRequest { containing_type: "a.B".to_owned(), extension_number: 1 };
    for question in
        [MessageRequest::FileByFilename("none.proto".to_owned()), MessageRequest::FileContainingExtension(extension)]
    {
        assert!(matches!(ask(question), MessageResponse::ErrorResponse(_)));
    }
    let empty = files().answer(ServerReflectionRequest::default()).message_response.unwrap();
    let MessageResponse::ErrorResponse(error) = empty else { panic!("{empty:?}") };
    assert_eq!(error.error_code, Code::InvalidArgument as i32);
}
