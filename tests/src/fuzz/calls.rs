//! Sends any bytes as the messages of any call to a service in this process.
//!
//! Every call must end, with an answer or with an error that has one of our reasons. The service must then still answer
//! correctly.

use crate::wire::puppet;
use crate::wire::raw::Raw;
use crate::wire::world::{World, address};
use anyhow::{Context, ensure};
use engine::work::ToLeader;
use http::uri::PathAndQuery;
use prost::Message as _;
use prost_types::FileDescriptorSet;
use proto::r#type::v1beta1::{ErrorReason, ReplicaRole};
use proto::work::v1beta1::StreamWorkRequest;
use std::cell::RefCell;
use std::time::Duration;
use tokio::runtime::Runtime;
use tonic::client::Grpc;
use tonic::transport::Channel;
use tonic::{Request, Status};
use tonic_types::StatusExt as _;

/// The maximum number of calls to one world. Some calls leave data behind, so the test then replaces the world.
const CALLS_MAX: usize = 500;
/// The maximum number of messages that a call sends, and of answers that it reads.
const MESSAGES_MAX: usize = 64;
/// The virtual time limit of an answer. A stream may be silent for longer.
const ANSWER_WITHIN: Duration = Duration::from_secs(70);
const WORK: &str = "/ownergraph.work.v1beta1.WorkService/StreamWork";

struct Service {
    world: World,
    /// The runtime is dropped last.
    runtime: Runtime,
    paths: Vec<PathAndQuery>,
    calls: usize,
}

thread_local! {
    static SERVICE: RefCell<Option<Service>> = const { RefCell::new(None) };
}

fn paths() -> anyhow::Result<Vec<PathAndQuery>> {
    let files = [proto::FILE_DESCRIPTOR_SET, tonic_health::pb::FILE_DESCRIPTOR_SET];
    let mut paths = vec![PathAndQuery::from_static("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo")];
    for file in files.map(FileDescriptorSet::decode) {
        for file in file?.file {
            for service in &file.service {
                for method in &service.method {
                    paths.push(format!("/{}.{}/{}", file.package(), service.name(), method.name()).parse()?);
                }
            }
        }
    }
    Ok(paths)
}

impl Service {
    fn start() -> anyhow::Result<Service> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build()?;
        let world = runtime.block_on(async {
            let mut world = World::new().await?;
            world.replica("a");
            crate::load::families(&world.client, "default", "f", 2, 3).await?;
            world.until_role("a", ReplicaRole::Leader).await?;
            anyhow::Ok(world)
        })?;
        Ok(Service { world, runtime, paths: paths()?, calls: 0 })
    }

    fn call(&mut self, path: PathAndQuery, messages: Vec<Vec<u8>>) -> anyhow::Result<()> {
        self.calls += 1;
        let Service { world, runtime, .. } = self;
        runtime.block_on(async {
            let (channel, _link) = puppet::channel(&world.network, "anybody", &address("a")).await?;
            let ended = tokio::time::timeout(ANSWER_WITHIN, answers(channel, path.clone(), messages)).await;
            if let Ok(Err(status)) = ended {
                ensure!(has_reason(&status), "{path}: {status:?}");
            }
            world.status("a").await.with_context(|| format!("after {path}, the service does not answer any more"))?;
            Ok(())
        })
    }
}

/// Sends the messages, and reads until the end or the maximum.
async fn answers(channel: Channel, path: PathAndQuery, messages: Vec<Vec<u8>>) -> Result<(), Status> {
    let mut client = Grpc::new(channel);
    client.ready().await.map_err(|error| Status::unknown(error.to_string()))?;
    let mut answers = client.streaming(Request::new(futures::stream::iter(messages)), path, Raw).await?.into_inner();
    for _ in 0..MESSAGES_MAX {
        if answers.message().await?.is_none() {
            break;
        }
    }
    Ok(())
}

fn has_reason(status: &Status) -> bool {
    let details = status.get_error_details();
    let reason = details.error_info().and_then(|info| proto::error_reason::parse(&info.reason));
    reason.is_some_and(|reason| reason != ErrorReason::Unspecified)
}

/// Splits the bytes into messages. Two bytes with the length precede each message.
fn messages(mut bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut messages = Vec::new();
    while let Some((length, rest)) = bytes.split_first_chunk::<2>()
        && messages.len() < MESSAGES_MAX
    {
        let (message, rest) = rest.split_at(usize::from(u16::from_le_bytes(*length)).min(rest.len()));
        messages.push(message.to_vec());
        bytes = rest;
    }
    messages
}

fn with_service(call: impl FnOnce(&mut Service) -> anyhow::Result<()>) {
    SERVICE.with_borrow_mut(|slot| {
        if slot.as_ref().is_none_or(|service| service.calls >= CALLS_MAX) {
            *slot = None;
            *slot = Some(Service::start().expect("a service starts"));
        }
        let called = slot.as_mut().map(call).unwrap_or(Ok(()));
        if let Err(error) = called {
            *slot = None;
            panic!("{error:#}");
        }
    });
}

/// The first byte selects the call. The rest is its message.
pub(super) fn any(bytes: &[u8]) {
    let Some((&which, message)) = bytes.split_first() else { return };
    with_service(|service| {
        let path = service.paths[usize::from(which) % service.paths.len()].clone();
        service.call(path, vec![message.to_vec()])
    });
}

/// An executor sends all messages after a hello. If the first byte is odd, it sends no hello.
pub(super) fn work_stream(bytes: &[u8]) {
    let Some((&first, rest)) = bytes.split_first() else { return };
    with_service(|service| {
        let mut said = messages(rest);
        if first % 2 == 0 {
            let hello = puppet::hello("e", &first.to_string(), &service.world.cluster_uid, 4);
            said.insert(0, StreamWorkRequest::from(ToLeader::Hello(hello)).encode_to_vec());
        }
        service.call(PathAndQuery::from_static(WORK), said)
    });
}
