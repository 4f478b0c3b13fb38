//! Every call that the service says it has, by what reflection tells of it.

use super::*;
use bytes::{Buf as _, BufMut as _};
use prost::Message as _;
use prost_types::FileDescriptorSet;
use proto::r#type::v1alpha1::ErrorReason;
use std::collections::BTreeSet;
use tonic::Request;
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;

/// Messages as bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Raw;

impl Codec for Raw {
    type Encode = Vec<u8>;
    type Decode = Vec<u8>;
    type Encoder = Raw;
    type Decoder = Raw;

    fn encoder(&mut self) -> Raw {
        Raw
    }

    fn decoder(&mut self) -> Raw {
        Raw
    }
}

impl Encoder for Raw {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(&mut self, item: Vec<u8>, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put_slice(&item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Vec<u8>;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Vec<u8>>, Status> {
        let length = buffer.remaining();
        Ok(Some(buffer.copy_to_bytes(length).to_vec()))
    }
}

/// The first message that a call with this one message is answered with.
async fn call(channel: &Channel, path: &str, message: Vec<u8>) -> Result<Option<Vec<u8>>, Status> {
    let mut client = Grpc::new(channel.clone());
    client.ready().await.unwrap();
    let request = Request::new(futures::stream::iter([message]));
    client.streaming(request, path.parse().unwrap(), Raw).await?.into_inner().message().await
}

fn known(reason: &str) -> bool {
    proto::error_reason::parse(reason).is_some_and(|reason| reason != ErrorReason::Unspecified)
}

/// Services with their methods, of files as reflection has them.
fn methods(files: &[u8]) -> Vec<(String, Vec<String>)> {
    let files = FileDescriptorSet::decode(files).unwrap();
    let mut services = Vec::new();
    for file in files.file {
        for service in &file.service {
            let methods = service.method.iter().map(|method| method.name().to_owned()).collect();
            services.push((format!("{}.{}", file.package(), service.name()), methods));
        }
    }
    services
}

#[tokio::test(start_paused = true)]
async fn every_call_answers_or_says_why_not() {
    with_service(async |dial| {
        let channel = dial.channel().await;
        let mut services = methods(proto::FILE_DESCRIPTOR_SET);
        services.extend(methods(tonic_health::pb::FILE_DESCRIPTOR_SET));
        let mut calls = 0;
        for (service, methods) in &services {
            for method in methods {
                calls += 1;
                let path = format!("/{service}/{method}");
                // Some without an object of the request, some for want of a leader's log, some with an answer.
                if let Err(refused) = call(&channel, &path, Vec::new()).await {
                    assert!(known(&reason(&refused)), "{path}: {refused:?}");
                    assert_ne!(refused.code(), Code::Unimplemented, "{path}: {refused:?}");
                }
                let garbage = call(&channel, &path, vec![0xff; 16]).await.expect_err("no message at all");
                // Who reads a stream says so in its own words.
                let unread = ["MESSAGE_UNREADABLE", "STREAM_PROTOCOL_VIOLATION"];
                assert!(unread.contains(&reason(&garbage).as_str()), "{path}: {garbage:?}");
                let huge = call(&channel, &path, vec![0; 5 * 1024 * 1024]).await.expect_err("too much");
                let unread = ["MESSAGE_TOO_LARGE", "STREAM_PROTOCOL_VIOLATION"];
                assert!(unread.contains(&reason(&huge).as_str()), "{path}: {huge:?}");
            }
        }
        assert!(calls > 20, "{calls}");
        for path in ["/ownergraph.graph.v1alpha1.GraphService/Nothing", "/nobody/Nothing", "/"] {
            let refused = call(&channel, path, Vec::new()).await.expect_err("nobody answers this");
            assert_eq!((refused.code(), reason(&refused).as_str()), (Code::Unimplemented, "METHOD_UNKNOWN"), "{path}");
        }

        let mut reflection = ServerReflectionClient::new(channel);
        let list = MessageRequest::ListServices(String::new());
        let request = ServerReflectionRequest { host: String::new(), message_request: Some(list) };
        let mut answers =
            reflection.server_reflection_info(futures::stream::iter([request])).await.unwrap().into_inner();
        let answer = answers.message().await.unwrap().and_then(|answer| answer.message_response);
        let Some(MessageResponse::ListServicesResponse(listed)) = answer else { panic!("{answer:?}") };
        let listed: BTreeSet<String> = listed.service.into_iter().map(|service| service.name).collect();
        for (service, _) in services {
            assert!(listed.contains(&service), "{service} is not among {listed:?}");
        }
    })
    .await;
}
