//! Calls every method of the service that reflection lists.

use super::{led_by_a, reason};
use anyhow::{Context, bail, ensure};
use http::uri::PathAndQuery;
use prost::Message as _;
use prost_types::FileDescriptorSet;
use proto::r#type::v1beta1::ErrorReason;
use std::collections::BTreeSet;
use tests::wire::puppet;
use tests::wire::raw::Raw;
use tests::wire::world::address;
use tonic::client::Grpc;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;

/// Returns the first result of a call with this one message, if the server answers.
async fn call(channel: &Channel, path: &str, message: Vec<u8>) -> anyhow::Result<Result<Option<Vec<u8>>, Status>> {
    let mut client = Grpc::new(channel.clone());
    client.ready().await?;
    let request = Request::new(futures::stream::iter([message]));
    let path: PathAndQuery = path.parse()?;
    let answered = async { client.streaming(request, path, Raw).await?.into_inner().message().await };
    Ok(answered.await)
}

/// Returns the error of a call with this one message.
async fn refusal(channel: &Channel, path: &str, message: Vec<u8>) -> anyhow::Result<Status> {
    call(channel, path, message).await?.err().with_context(|| format!("{path} is answered"))
}

fn known(reason: &str) -> bool {
    proto::error_reason::parse(reason).is_some_and(|reason| reason != ErrorReason::Unspecified)
}

/// Returns the services with their methods, from the files of reflection.
fn methods(files: &[u8]) -> anyhow::Result<Vec<(String, Vec<String>)>> {
    let mut services = Vec::new();
    for file in FileDescriptorSet::decode(files)?.file {
        for service in &file.service {
            let methods = service.method.iter().map(|method| method.name().to_owned()).collect();
            services.push((format!("{}.{}", file.package(), service.name()), methods));
        }
    }
    Ok(services)
}

#[tokio::test(start_paused = true)]
async fn every_call_answers_or_says_why_not() -> anyhow::Result<()> {
    let world = led_by_a().await?;
    let (channel, _link) = puppet::channel(&world.network, "somebody", &address("a")).await?;
    let mut services = methods(proto::FILE_DESCRIPTOR_SET)?;
    services.extend(methods(tonic_health::pb::FILE_DESCRIPTOR_SET)?);
    let mut calls = 0;
    for (service, methods) in &services {
        for method in methods {
            calls += 1;
            let path = format!("/{service}/{method}");
            // Some calls fail because their object does not exist, and some succeed.
            if let Err(refused) = call(&channel, &path, Vec::new()).await? {
                ensure!(known(&reason(&refused)) && refused.code() != Code::Unimplemented, "{path}: {refused:?}");
            }
            let garbage = refusal(&channel, &path, vec![0xff; 16]).await?;
            // A reader of a stream gets an error in that stream's own words.
            let unread = ["MESSAGE_UNREADABLE", "STREAM_PROTOCOL_VIOLATION"];
            ensure!(unread.contains(&reason(&garbage).as_str()), "{path}: {garbage:?}");
            let huge = refusal(&channel, &path, vec![0; 5 * 1024 * 1024]).await?;
            let unread = ["MESSAGE_TOO_LARGE", "STREAM_PROTOCOL_VIOLATION"];
            ensure!(unread.contains(&reason(&huge).as_str()), "{path}: {huge:?}");
        }
    }
    ensure!(calls > 20, "{calls}");
    for path in ["/ownergraph.graph.v1beta1.GraphService/Nothing", "/nobody/Nothing", "/"] {
        let refused = refusal(&channel, path, Vec::new()).await?;
        ensure!((refused.code(), reason(&refused).as_str()) == (Code::Unimplemented, "METHOD_UNKNOWN"), "{path}");
    }

    let mut reflection = ServerReflectionClient::new(channel);
    let list = MessageRequest::ListServices(String::new());
    let request = ServerReflectionRequest { host: String::new(), message_request: Some(list) };
    let mut answers = reflection.server_reflection_info(futures::stream::iter([request])).await?.into_inner();
    let answer = answers.message().await?.and_then(|answer| answer.message_response);
    let Some(MessageResponse::ListServicesResponse(listed)) = answer else { bail!("{answer:?}") };
    let listed: BTreeSet<String> = listed.service.into_iter().map(|service| service.name).collect();
    for (service, _) in services {
        ensure!(listed.contains(&service), "{service} is not among {listed:?}");
    }
    Ok(())
}
