//! The way to the graph service: an address, a port forwarded to a pod that is found by label, or a graph that is listed from here.

use super::direct::{self, Direct};
use super::ending::Problem;
use super::session::Session;
use anyhow::{Context as _, anyhow};
use executor_service::endpoint;
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::ListParams;
use proto::admin::v1alpha1::admin_service_client::AdminServiceClient;
use proto::graph::v1alpha1::graph_service_client::GraphServiceClient;
use std::time::Duration;
use tonic::transport::Channel;

const SELECTOR: &str = "app.kubernetes.io/name=ownergraph,app.kubernetes.io/component=graph-service";
/// The name of the container port, and its number where none has that name.
const PORT_NAME: &str = "grpc";
const PORT: u16 = 7450;
const MESSAGE_MAX_BYTES: usize = 64 << 20;

/// A connection to whoever answers. All of them answer alike.
#[derive(Debug)]
pub(super) struct Service {
    pub(super) graph: GraphServiceClient<Channel>,
    pub(super) admin: AdminServiceClient<Channel>,
    pub(super) within: Duration,
    /// The graph of this process, where it is one.
    _direct: Option<Direct>,
}

impl Service {
    /// Connects. Only a read may be answered by a graph that is listed from here.
    pub(super) async fn connect(session: &mut Session, read_only: bool) -> Result<Service, Problem> {
        if let Some(address) = session.connection.server.clone() {
            let channel = endpoint(&address).map_err(Problem::sentence)?.connect().await;
            let channel = channel.with_context(|| format!("the graph service at {address} cannot be reached"))?;
            return Ok(Service::over(channel, session, None));
        }
        if !session.connection.direct {
            match forwarded(session).await {
                Ok(Some(channel)) => return Ok(Service::over(channel, session, None)),
                Ok(None) => {}
                Err(error) => session.note(&format!("{error:#}")),
            }
        }
        let context = session.cluster.name.clone();
        if !read_only {
            return Err(Problem::sentence(format!(
                "no ownergraph service in context {context:?}: name one with --server"
            )));
        }
        let (channel, direct) = direct::start(session).await?;
        Ok(Service::over(channel, session, Some(direct)))
    }

    fn over(channel: Channel, session: &Session, direct: Option<Direct>) -> Service {
        Service {
            graph: GraphServiceClient::new(channel.clone()).max_decoding_message_size(MESSAGE_MAX_BYTES),
            admin: AdminServiceClient::new(channel).max_decoding_message_size(MESSAGE_MAX_BYTES),
            within: session.connection.request_timeout,
            _direct: direct,
        }
    }
}

/// A channel through the API server to a pod of the graph service, if there is one.
async fn forwarded(session: &Session) -> anyhow::Result<Option<Channel>> {
    let client = session.cluster.client.clone();
    let pods: Api<Pod> = match &session.connection.port_forward_namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    };
    let labelled = ListParams::default().labels(SELECTOR);
    let listed = tokio::time::timeout(session.connection.request_timeout, pods.list(&labelled));
    let listed = listed.await.map_err(|_| anyhow!("pods of the graph service were not listed in time"))?;
    let listed = listed.context("pods of the graph service cannot be looked for")?;
    let Some((namespace, name, port)) = listed.items.iter().filter(|pod| is_ready(pod)).find_map(place) else {
        return Ok(None);
    };
    let pods: Api<Pod> = Api::namespaced(client, &namespace);
    let shown = format!("{namespace}/{name}");
    let forward = tower::service_fn(move |_| {
        let (pods, name) = (pods.clone(), name.clone());
        async move {
            let mut forwarder = pods.portforward(&name, &[port]).await?;
            let stream =
                forwarder.take_stream(port).ok_or_else(|| anyhow!("the API server forwards no port {port}"))?;
            anyhow::Ok(TokioIo::new(stream))
        }
    });
    let endpoint = endpoint(&format!("localhost:{port}")).map_err(anyhow::Error::msg)?;
    let channel = endpoint.connect_with_connector(forward).await;
    channel.map(Some).with_context(|| format!("no port can be forwarded to pod {shown}"))
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let ready = conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True");
    ready && pod.metadata.deletion_timestamp.is_none()
}

fn place(pod: &Pod) -> Option<(String, String, u16)> {
    let containers = pod.spec.as_ref().map(|spec| spec.containers.as_slice()).unwrap_or_default();
    let mut ports = containers.iter().flat_map(|container| container.ports.iter().flatten());
    let named = ports.find(|port| port.name.as_deref() == Some(PORT_NAME));
    let port = named.map_or(Some(PORT), |port| u16::try_from(port.container_port).ok())?;
    Some((pod.metadata.namespace.clone()?, pod.metadata.name.clone()?, port))
}
