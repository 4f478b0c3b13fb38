//! A relay between executors and one replica of the graph service. It is a gRPC server for the executors, and a client
//! of the replica. It records every message, and a rule decides what happens to each message.

use super::network::{Accepted, Link, Network};
use engine::work::{ToExecutor, ToLeader};
use futures::{FutureExt, StreamExt};
use proto::convert::{received_from_executor, received_from_leader};
use proto::work::v1beta1::work_service_client::WorkServiceClient;
use proto::work::v1beta1::work_service_server::{WorkService, WorkServiceServer};
use proto::work::v1beta1::{StreamWorkRequest, StreamWorkResponse};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Server;
use tonic::{Request, Response, Status, Streaming};

/// The maximum number of messages in flight, in each direction of one stream.
const WAITING_MAX: usize = 64;
/// A short delay. No timer is due so soon, and the clock stands still while anything is in flight, so earlier messages
/// have arrived after it.
const DELIVERED: Duration = Duration::from_millis(1);

/// One message.
#[derive(Clone, Debug)]
pub struct Line {
    pub at: Instant,
    /// The host of the executor.
    pub executor: String,
    /// The number of the stream at this relay.
    pub stream: u64,
    pub said: Said,
}

/// A message, by its direction.
#[derive(Clone, Debug)]
pub enum Said {
    Up(ToLeader),
    Down(ToExecutor),
    /// The leader ended the stream with an error.
    Refused(Status),
}

/// The fate of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    Pass,
    /// The message and all following ones of its direction arrive after this delay.
    Delay(Duration),
    /// The connections on both sides break before the message arrives.
    CutBefore,
    /// The connections on both sides break after the message has arrived.
    CutAfter,
}

type Rule = Box<dyn FnMut(&Line) -> Order + Send>;

/// The relay. All clones are the same relay.
#[derive(Clone)]
pub struct Relay(Arc<Mutex<State>>);

struct State {
    lines: Vec<Line>,
    rule: Rule,
    streams: u64,
    carriers: JoinSet<()>,
}

/// The service for one connection.
struct Desk {
    relay: Relay,
    network: Network,
    from: String,
    link: Link,
    to: String,
}

impl Default for Relay {
    fn default() -> Relay {
        let state = State { lines: Vec::new(), rule: Box::new(|_| Order::Pass), streams: 0, carriers: JoinSet::new() };
        Relay(Arc::new(Mutex::new(state)))
    }
}

impl std::fmt::Debug for Relay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Relay").finish_non_exhaustive()
    }
}

impl Relay {
    /// Applies this rule to messages from now on.
    pub fn rule(&self, rule: impl FnMut(&Line) -> Order + Send + 'static) {
        self.state().rule = Box::new(rule);
    }

    /// Returns every message so far, in the order of arrival.
    pub fn lines(&self) -> Vec<Line> {
        self.state().lines.clone()
    }

    /// Returns the values of `pick` for all messages that have one.
    pub fn said<T>(&self, pick: impl FnMut(&Line) -> Option<T>) -> Vec<T> {
        self.state().lines.iter().filter_map(pick).collect()
    }

    /// Accepts connections at `address` and forwards them to `to`, until the future is dropped.
    pub async fn run(self, network: Network, address: String, to: String) {
        let mut connections = network.listen(&address);
        let mut serving = JoinSet::new();
        loop {
            tokio::select! {
                Some(Accepted { from, pipe, link }) = connections.recv() => {
                    let desk =
                        Desk { relay: self.clone(), network: network.clone(), from, link, to: to.clone() };
                    let only = tokio_stream::iter([Ok::<_, std::io::Error>(pipe)]);
                    let server = Server::builder()
                        .add_service(WorkServiceServer::new(desk))
                        .serve_with_incoming(only.chain(tokio_stream::pending()));
                    serving.spawn(server.map(drop));
                }
                Some(_ended) = serving.join_next() => {}
            }
        }
    }

    fn heard(&self, line: Line) -> Order {
        let mut state = self.state();
        let order = (state.rule)(&line);
        state.lines.push(line);
        order
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[tonic::async_trait]
impl WorkService for Desk {
    type StreamWorkStream = ReceiverStream<Result<StreamWorkResponse, Status>>;

    async fn stream_work(
        &self,
        request: Request<Streaming<StreamWorkRequest>>,
    ) -> Result<Response<Self::StreamWorkStream>, Status> {
        let gone = |error: std::io::Error| Status::unavailable(error.to_string());
        let (pipe, onward) = self.network.dial(&self.from, &self.to).await.map_err(gone)?;
        let channel = executor_service::connect_over(&self.to, pipe).await.map_err(Status::unavailable)?;
        let stream = {
            let mut state = self.relay.state();
            state.streams += 1;
            state.streams
        };
        let carrier = Carrier {
            relay: self.relay.clone(),
            executor: self.from.clone(),
            stream,
            links: [self.link.clone(), onward],
        };
        let (up, requests) = mpsc::channel(WAITING_MAX);
        let (down, replies) = mpsc::channel(WAITING_MAX);
        self.relay.state().carriers.spawn(carrier.clone().carry_up(request.into_inner(), up));
        let called = WorkServiceClient::new(channel).stream_work(ReceiverStream::new(requests)).await;
        let responses = called.inspect_err(|status| carrier.refused(status))?.into_inner();
        self.relay.state().carriers.spawn(carrier.carry_down(responses, down));
        Ok(Response::new(ReceiverStream::new(replies)))
    }
}

#[derive(Clone)]
struct Carrier {
    relay: Relay,
    executor: String,
    stream: u64,
    links: [Link; 2],
}

impl Carrier {
    async fn carry_up(self, mut from: Streaming<StreamWorkRequest>, to: mpsc::Sender<StreamWorkRequest>) {
        while let Ok(Some(message)) = from.message().await {
            let known = received_from_executor(message.clone()).ok().flatten();
            let order = known.map_or(Order::Pass, |message| self.heard(Said::Up(message)));
            if self.pass(order, message, &to).await.is_err() {
                return;
            }
        }
    }

    async fn carry_down(
        self,
        mut from: Streaming<StreamWorkResponse>,
        to: mpsc::Sender<Result<StreamWorkResponse, Status>>,
    ) {
        loop {
            let message = match from.message().await {
                Ok(Some(message)) => message,
                Ok(None) => return,
                Err(status) => {
                    self.refused(&status);
                    // The call fails if the executor has left.
                    let _unheard = to.send(Err(status)).await;
                    return;
                }
            };
            let known = received_from_leader(message.clone()).ok().flatten();
            let order = known.map_or(Order::Pass, |known| self.heard(Said::Down(known.message)));
            if self.pass(order, Ok(message), &to).await.is_err() {
                return;
            }
        }
    }

    /// Returns an error if the stream is over.
    async fn pass<T>(&self, order: Order, message: T, to: &mpsc::Sender<T>) -> Result<(), ()> {
        match order {
            Order::Pass => {}
            Order::Delay(time) => tokio::time::sleep(time).await,
            Order::CutBefore => {
                self.cut();
                return Err(());
            }
            Order::CutAfter => {
                to.send(message).await.map_err(drop)?;
                tokio::time::sleep(DELIVERED).await;
                self.cut();
                return Err(());
            }
        }
        to.send(message).await.map_err(drop)
    }

    fn heard(&self, said: Said) -> Order {
        let line = Line { at: Instant::now(), executor: self.executor.clone(), stream: self.stream, said };
        self.relay.heard(line)
    }

    fn refused(&self, status: &Status) {
        self.heard(Said::Refused(status.clone()));
    }

    fn cut(&self) {
        for link in &self.links {
            link.cut();
        }
    }
}
