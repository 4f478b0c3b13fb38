//! A graph service somewhere else, over gRPC.

use crate::args::Remote;
use crate::failure::Failure;
use proto::admin::v1alpha1::admin_service_client::AdminServiceClient;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::time::timeout;
use tonic::transport::Channel;
use tonic::{Code, Status};

/// From the dial to a connection that can be used.
const CONNECT_WITHIN: Duration = Duration::from_secs(3);
/// From a call to its answer.
pub(crate) const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// A graph service's administration.
pub(crate) type Admin = AdminServiceClient<Channel>;

/// A way to the replicas of a graph service.
pub(crate) trait Reach {
    /// A replica that answers.
    async fn any(&self) -> Result<Channel, Failure>;
    /// The replica that another one hints at, where it can be reached.
    async fn at(&self, hint: &str) -> Option<Channel>;
}

/// By address, in plaintext. The first of the addresses that can be reached counts.
impl Reach for Remote {
    async fn any(&self) -> Result<Channel, Failure> {
        let mut unreached = Vec::new();
        for address in &self.server {
            if !self.insecure && !is_loopback(address) {
                return Err(Failure::Usage(format!(
                    "--server {address} is not a loopback address and the connection is plaintext: use a loopback address, or allow it with --insecure"
                )));
            }
            match dial(address).await {
                Ok(channel) => return Ok(channel),
                Err(why) => unreached.push(why),
            }
        }
        let sentence = format!("no graph service can be reached: {}", unreached.join("; "));
        Err(Failure::Other(anyhow::Error::msg(sentence)))
    }

    async fn at(&self, hint: &str) -> Option<Channel> {
        if hint.is_empty() || (!self.insecure && !is_loopback(hint)) {
            return None;
        }
        dial(hint).await.ok()
    }
}

async fn dial(address: &str) -> Result<Channel, String> {
    let endpoint = executor_service::endpoint(address)?;
    let channel = timeout(CONNECT_WITHIN, endpoint.connect()).await;
    let channel = channel.map_err(|_| format!("{address} does not answer"))?;
    channel.map_err(|_| format!("nobody serves gRPC at {address}"))
}

fn is_loopback(address: &str) -> bool {
    match address.parse::<SocketAddr>() {
        Ok(address) => address.ip().is_loopback(),
        Err(_) => address.rsplit_once(':').map_or(address, |(host, _)| host) == "localhost",
    }
}

/// A call's error as the end of a command.
pub(crate) fn failed(status: Status) -> Failure {
    let sentence = status.message().to_owned();
    if status.code() == Code::FailedPrecondition {
        Failure::Refused(sentence)
    } else if status.code() == Code::InvalidArgument {
        Failure::Usage(sentence)
    } else {
        Failure::Other(anyhow::Error::msg(sentence))
    }
}

/// Makes a call that has its time.
pub(crate) async fn within<T>(call: impl Future<Output = Result<tonic::Response<T>, Status>>) -> Result<T, Failure> {
    match timeout(ANSWER_WITHIN, call).await {
        Ok(answer) => answer.map(tonic::Response::into_inner).map_err(failed),
        Err(_) => {
            let seconds = ANSWER_WITHIN.as_secs();
            Err(Failure::Other(anyhow::anyhow!("the graph service does not answer within {seconds} s")))
        }
    }
}
