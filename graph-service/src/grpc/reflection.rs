//! `grpc.reflection` in both versions, which are identical on the wire.
//!
//! Files are returned exactly as compiled, so that they keep options that this program does not know. For a missing
//! symbol the answer is an `error_response`, and the stream continues.

use futures::StreamExt as _;
use futures::stream::BoxStream;
use prost::Message;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tonic::{Code, Request, Response, Status, Streaming};
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;
use tonic_reflection::pb::v1::server_reflection_server::{ServerReflection, ServerReflectionServer};
use tonic_reflection::pb::v1::*;
use tonic_reflection::pb::v1alpha;
use tonic_reflection::pb::v1alpha::server_reflection_server as alpha;

#[cfg(test)]
mod tests;

/// Maximum length of a name. No name of this API is nearly as long.
const QUESTION_MAX_BYTES: usize = 64 * 1024;

/// A set of compiled files.
#[derive(Clone, PartialEq, prost::Message)]
struct Set {
    #[prost(bytes = "vec", repeated, tag = "1")]
    file: Vec<Vec<u8>>,
}

/// Files, and their symbols.
#[derive(Debug, Default)]
struct Files {
    by_name: BTreeMap<String, Vec<u8>>,
    /// The file that declares a symbol.
    symbols: BTreeMap<String, String>,
    /// The file that declares an extension of a message, by number.
    extensions: BTreeMap<(String, i32), String>,
    services: BTreeSet<String>,
}

/// The service in both versions.
#[derive(Clone, Debug)]
pub(super) struct Reflection(Arc<Files>);

impl Reflection {
    pub(super) fn of(sets: &[&[u8]]) -> Result<Reflection, prost::DecodeError> {
        let mut files = Files::default();
        for set in sets {
            for file in Set::decode(*set)?.file {
                files.add(file)?;
            }
        }
        Ok(Reflection(Arc::new(files)))
    }

    pub(super) fn v1(&self) -> ServerReflectionServer<Reflection> {
        ServerReflectionServer::new(self.clone()).max_decoding_message_size(QUESTION_MAX_BYTES)
    }

    pub(super) fn v1alpha(&self) -> alpha::ServerReflectionServer<Reflection> {
        alpha::ServerReflectionServer::new(self.clone()).max_decoding_message_size(QUESTION_MAX_BYTES)
    }
}

impl Files {
    fn add(&mut self, bytes: Vec<u8>) -> Result<(), prost::DecodeError> {
        let file = prost_types::FileDescriptorProto::decode(bytes.as_slice())?;
        let name = file.name().to_owned();
        let inside =
            |outer: &str, name: &str| if outer.is_empty() { name.to_owned() } else { format!("{outer}.{name}") };
        for service in &file.service {
            let full = inside(file.package(), service.name());
            for method in &service.method {
                self.symbols.insert(inside(&full, method.name()), name.clone());
            }
            self.symbols.insert(full.clone(), name.clone());
            self.services.insert(full);
        }
        let mut enums: Vec<(String, prost_types::EnumDescriptorProto)> =
            file.enum_type.iter().map(|of| (file.package().to_owned(), of.clone())).collect();
        let mut extensions: Vec<(String, prost_types::FieldDescriptorProto)> =
            file.extension.iter().map(|of| (file.package().to_owned(), of.clone())).collect();
        let mut messages: Vec<(String, prost_types::DescriptorProto)> =
            file.message_type.iter().map(|of| (file.package().to_owned(), of.clone())).collect();
        while let Some((outer, message)) = messages.pop() {
            let full = inside(&outer, message.name());
            for field in message.field.iter().map(|field| field.name()) {
                self.symbols.insert(inside(&full, field), name.clone());
            }
            for one in message.oneof_decl.iter().map(|one| one.name()) {
                self.symbols.insert(inside(&full, one), name.clone());
            }
            enums.extend(message.enum_type.into_iter().map(|of| (full.clone(), of)));
            extensions.extend(message.extension.into_iter().map(|of| (full.clone(), of)));
            messages.extend(message.nested_type.into_iter().map(|of| (full.clone(), of)));
            self.symbols.insert(full, name.clone());
        }
        for (outer, of) in enums {
            // An enum value has the scope of its enum, and not of the enum's name.
            for value in of.value.iter().map(|value| value.name()) {
                self.symbols.insert(inside(&outer, value), name.clone());
            }
            self.symbols.insert(inside(&outer, of.name()), name.clone());
        }
        for (outer, of) in extensions {
            let extended = of.extendee().trim_start_matches('.').to_owned();
            self.extensions.insert((extended, of.number()), name.clone());
            self.symbols.insert(inside(&outer, of.name()), name.clone());
        }
        self.by_name.insert(name, bytes);
        Ok(())
    }

    fn answer(&self, request: ServerReflectionRequest) -> ServerReflectionResponse {
        let answer = match &request.message_request {
            None => Err((Code::InvalidArgument, "the request is empty".to_owned())),
            Some(MessageRequest::FileByFilename(name)) => self.file(Some(name), "file", name),
            Some(MessageRequest::FileContainingSymbol(name)) => {
                self.file(self.symbols.get(name.trim_start_matches('.')), "symbol", name)
            }
            Some(MessageRequest::FileContainingExtension(of)) => {
                let key = (of.containing_type.trim_start_matches('.').to_owned(), of.extension_number);
                self.file(self.extensions.get(&key), "extension of", &of.containing_type)
            }
            Some(MessageRequest::AllExtensionNumbersOfType(name)) => {
                let base_type_name = name.trim_start_matches('.').to_owned();
                let numbers = self.extensions.keys().filter(|(of, _)| *of == base_type_name).map(|(_, number)| *number);
                let extension_number = numbers.collect();
                Ok(MessageResponse::AllExtensionNumbersResponse(ExtensionNumberResponse {
                    base_type_name,
                    extension_number,
                }))
            }
            Some(MessageRequest::ListServices(_)) => {
                let service = self.services.iter().map(|name| ServiceResponse { name: name.clone() }).collect();
                Ok(MessageResponse::ListServicesResponse(ListServiceResponse { service }))
            }
        };
        let failed = |(code, error_message): (Code, String)| {
            MessageResponse::ErrorResponse(ErrorResponse { error_code: code as i32, error_message })
        };
        ServerReflectionResponse {
            valid_host: request.host.clone(),
            message_response: Some(answer.unwrap_or_else(failed)),
            original_request: Some(request),
        }
    }

    fn file(&self, name: Option<&String>, what: &str, asked: &str) -> Result<MessageResponse, (Code, String)> {
        let file = name.and_then(|name| self.by_name.get(name));
        let missing = || (Code::NotFound, format!("there is no {what} {:?}", engine::object::clip(asked, 512)));
        let file_descriptor_proto = vec![file.ok_or_else(missing)?.clone()];
        Ok(MessageResponse::FileDescriptorResponse(FileDescriptorResponse { file_descriptor_proto }))
    }
}

#[tonic::async_trait]
impl ServerReflection for Reflection {
    type ServerReflectionInfoStream = BoxStream<'static, Result<ServerReflectionResponse, Status>>;

    async fn server_reflection_info(
        &self,
        request: Request<Streaming<ServerReflectionRequest>>,
    ) -> Result<Response<Self::ServerReflectionInfoStream>, Status> {
        let files = Arc::clone(&self.0);
        let answers = request.into_inner().map(move |asked| asked.map(|request| files.answer(request)));
        Ok(Response::new(answers.boxed()))
    }
}

#[tonic::async_trait]
impl alpha::ServerReflection for Reflection {
    type ServerReflectionInfoStream = BoxStream<'static, Result<v1alpha::ServerReflectionResponse, Status>>;

    async fn server_reflection_info(
        &self,
        request: Request<Streaming<v1alpha::ServerReflectionRequest>>,
    ) -> Result<Response<Self::ServerReflectionInfoStream>, Status> {
        let files = Arc::clone(&self.0);
        let answers = request.into_inner().map(move |asked| {
            let asked: ServerReflectionRequest = same(&asked?)?;
            same(&files.answer(asked))
        });
        Ok(Response::new(answers.boxed()))
    }
}

/// Converts a message of one version to the other.
fn same<A: Message, B: Message + Default>(message: &A) -> Result<B, Status> {
    B::decode(message.encode_to_vec().as_slice()).map_err(|error| Status::internal(error.to_string()))
}
