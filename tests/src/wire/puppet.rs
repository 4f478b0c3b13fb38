//! An executor that sends only what a test tells it to send.

use super::network::{Link, Network};
use engine::work::{ActionKind, Hello, Origin, PROTOCOL, ToExecutor, ToLeader, Welcome, WorkLease};
use hyper_util::rt::TokioIo;
use proto::convert::received_from_leader;
use proto::work::v1beta1::work_service_client::WorkServiceClient;
use proto::work::v1beta1::{StreamWorkRequest, StreamWorkResponse};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Status, Streaming};

/// The maximum number of messages that wait for their transmission.
const WAITING_MAX: usize = 16;

/// One stream of such an executor, and the handle that breaks its connection, if there is one.
#[derive(Debug)]
pub struct Puppet<L = Link> {
    pub link: L,
    pub requests: mpsc::Sender<StreamWorkRequest>,
    pub replies: Streaming<StreamWorkResponse>,
}

/// Returns the hello of a new executor.
pub fn hello(executor: &str, incarnation: &str, cluster: &str, window: u32) -> Hello {
    Hello {
        executor: executor.into(),
        incarnation: incarnation.into(),
        min_protocol: PROTOCOL,
        max_protocol: PROTOCOL,
        kinds: ActionKind::ALL.to_vec(),
        window,
        held: Vec::new(),
        known_term: None,
        first_session: None,
        version: "test".to_owned(),
        cluster_uid: cluster.into(),
        origin: Origin::default(),
    }
}

/// Opens a channel from a host to an address. Returns it with the handle that breaks it.
pub async fn channel(network: &Network, from: &str, to: &str) -> anyhow::Result<(Channel, Link)> {
    let (pipe, link) = network.dial(from, to).await?;
    let channel = executor_service::connect_over(to, pipe).await.map_err(anyhow::Error::msg)?;
    Ok((channel, link))
}

/// Opens such a channel with this limit of unread bytes for each stream.
pub async fn channel_with_window(
    network: &Network,
    from: &str,
    to: &str,
    bytes: u32,
) -> anyhow::Result<(Channel, Link)> {
    let (pipe, link) = network.dial(from, to).await?;
    let mut pipe = Some(pipe);
    let once =
        tower::service_fn(move |_| std::future::ready(pipe.take().map(TokioIo::new).ok_or("the pipe is used up")));
    let endpoint = executor_service::endpoint(to).map_err(anyhow::Error::msg)?;
    let channel = endpoint.initial_stream_window_size(bytes).connect_with_connector(once).await?;
    Ok((channel, link))
}

impl Puppet {
    /// Opens a stream, and sends nothing.
    pub async fn call(network: &Network, from: &str, to: &str) -> anyhow::Result<Puppet> {
        Puppet::over(channel(network, from, to).await?).await
    }
}

impl<L> Puppet<L> {
    /// Opens a stream on a channel.
    pub async fn over((channel, link): (Channel, L)) -> anyhow::Result<Puppet<L>> {
        let (requests, waiting) = mpsc::channel(WAITING_MAX);
        let called = WorkServiceClient::new(channel).stream_work(ReceiverStream::new(waiting)).await?;
        Ok(Puppet { link, requests, replies: called.into_inner() })
    }

    /// Sends a message. If the stream has ended, the next [`Puppet::hear`] returns the reason.
    pub async fn say(&self, message: ToLeader) {
        for request in proto::batch::requests(message) {
            let _over = self.requests.send(request).await;
        }
    }

    /// Returns the next message, or `None` if the leader has finished.
    pub async fn hear(&mut self) -> Result<Option<ToExecutor>, Status> {
        loop {
            let Some(message) = self.replies.message().await? else { return Ok(None) };
            if let Ok(Some(known)) = received_from_leader(message) {
                return Ok(Some(known.message));
            }
        }
    }

    /// Returns the next message for which `pick` returns a value.
    pub async fn await_that<T>(&mut self, mut pick: impl FnMut(ToExecutor) -> Option<T>) -> anyhow::Result<T> {
        loop {
            let message = self.hear().await?;
            let message = message.ok_or_else(|| anyhow::anyhow!("the leader has finished"))?;
            if let Some(picked) = pick(message) {
                return Ok(picked);
            }
        }
    }

    /// Sends a hello, and returns the welcome.
    pub async fn greet(&mut self, hello: Hello) -> anyhow::Result<Welcome> {
        self.say(ToLeader::Hello(hello)).await;
        self.await_that(|message| if let ToExecutor::Welcome(welcome) = message { Some(welcome) } else { None }).await
    }

    /// Returns the next leases.
    pub async fn leases(&mut self) -> anyhow::Result<Vec<WorkLease>> {
        self.await_that(|message| if let ToExecutor::Grant { leases } = message { Some(leases) } else { None }).await
    }

    /// Sends heartbeats and reads all messages, until the stream ends.
    pub async fn beat(&mut self, every: Duration) -> Result<(), Status> {
        let mut ticks = tokio::time::interval(every);
        let mut sequence = 0;
        loop {
            tokio::select! {
                heard = self.hear() => {
                    if heard?.is_none() {
                        return Ok(());
                    }
                }
                _ = ticks.tick() => {
                    sequence += 1;
                    self.say(ToLeader::Heartbeat { sequence, started: 0, buffered: 0 }).await;
                }
            }
        }
    }
}
