//! A graph service in another process, over gRPC.

use crate::failure::Failure;
use executor_service::{Channel, dial, is_loopback};
use proto::admin::v1beta1::admin_service_client::AdminServiceClient;
use proto::admin::v1beta1::{Guard, ListGuardsRequest, ListPausesRequest, Pause};
use proto::error_reason;
use proto::graph::v1beta1::ListCoverageRequest;
use proto::graph::v1beta1::graph_service_client::GraphServiceClient;
use proto::graph::v1beta1::list_coverage_response::Collection;
use proto::r#type::v1beta1::ErrorReason;
use runtime::cause::innermost;
use runtime::tls::{Caller, CallerFlags};
use std::error::Error as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;
use tokio::time::timeout;
use tonic::{Code, Response, Status};
use tonic_types::StatusExt as _;

/// The default address of `collect`'s gRPC API. Each command also tries this address.
pub(crate) const LOCAL: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7450);

/// The flag for the name in the graph service's certificate. kubectl's --tls-server-name is for the API server.
pub(crate) const NAME_FLAG: &str = "--server-name";

/// Time from the start of a connection until it is usable.
const CONNECT_WITHIN: Duration = Duration::from_secs(3);
/// Time from a call to its answer.
pub(crate) const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// Maximum page size of a graph service.
pub(crate) const PAGE_SIZE: i32 = 1000;
/// Maximum number of pages of one answer: two million objects, or 2 GiB where a page is full before it has
/// [`PAGE_SIZE`].
pub(crate) const PAGES_MAX: usize = 2_000;
/// Maximum size of a message of a graph service.
pub(crate) const MESSAGE_MAX_BYTES: usize = 64 << 20;

/// A graph service's administration.
pub(crate) type Admin = AdminServiceClient<Channel>;

/// Addresses of a graph service. The first one that can be reached is used.
#[derive(Debug)]
pub(crate) struct Remote {
    pub(crate) server: Vec<String>,
    pub(crate) tls: CallerFlags,
    /// The name that their certificates must have, instead of the host in the address.
    pub(crate) server_name: Option<String>,
    /// Whether plaintext is allowed to addresses that are not loopback.
    pub(crate) insecure: bool,
}

impl Remote {
    /// A replica that answers.
    pub(crate) async fn any(&self) -> Result<Channel, Failure> {
        let caller = self.caller().await?;
        let mut unreached = Vec::new();
        for address in &self.server {
            match reach(&caller, address).await {
                Ok(channel) => return Ok(channel),
                Err(why) => unreached.push(why),
            }
        }
        let sentence = format!("no graph service can be reached: {}", unreached.join("; "));
        Err(Failure::Other(anyhow::Error::msg(sentence)))
    }

    /// The replica at the address that another replica named, where it can be reached.
    pub(crate) async fn at(&self, hint: &str) -> Option<Channel> {
        let caller = self.caller().await.ok()?;
        let may_leave = caller.is_tls() || (self.insecure && !caller.has_token());
        if hint.is_empty() || (!may_leave && !is_loopback(hint)) {
            return None;
        }
        reach(&caller, hint).await.ok()
    }

    /// The credentials for the addresses, or an error if the flags do not allow them.
    async fn caller(&self) -> Result<Caller, Failure> {
        let name = (NAME_FLAG, self.server_name.as_deref());
        self.tls.check("--server", &self.server, name).map_err(Failure::usage)?;
        let is_tls = self.tls.is_tls(&self.server);
        let port =
            |address: &str| address.trim_end_matches('/').rsplit(':').next().and_then(|port| port.parse::<u16>().ok());
        if let Some(address) = self.server.iter().find(|address| port(address).is_none()) {
            return Err(Failure::Usage(format!("--server {address:?} is not HOST:PORT, such as 127.0.0.1:7450")));
        }
        let far = self.server.iter().find(|address| !is_tls && !is_loopback(address));
        if let (Some(address), Some(token)) = (far, &self.tls.token_file) {
            return Err(Failure::Usage(format!(
                "--token-file {} needs TLS or loopback, and --server {address} is neither: other machines could read the token; set --tls-ca",
                token.display()
            )));
        }
        if let Some(address) = far.filter(|_| !self.insecure) {
            return Err(Failure::Usage(format!(
                "--server {address} is not a loopback address and the connection is plaintext: use a loopback address, use TLS with --tls-ca, or allow it with --insecure"
            )));
        }
        Caller::open(&self.tls, is_tls, name).await.map_err(Failure::usage)
    }
}

async fn reach(caller: &Caller, address: &str) -> Result<Channel, String> {
    let channel = timeout(CONNECT_WITHIN, dial(caller, address, None)).await;
    channel.unwrap_or_else(|_| Err(format!("{address} does not answer")))
}

/// All collections, page by page.
pub(crate) async fn collections(graph: &mut GraphServiceClient<Channel>) -> Result<Response<Vec<Collection>>, Status> {
    let mut request = ListCoverageRequest { page_size: PAGE_SIZE, ..Default::default() };
    let mut all = Vec::new();
    for _ in 0..PAGES_MAX {
        let page = graph.list_coverage(request.clone()).await?.into_inner();
        all.extend(page.collections);
        if page.next_page_token.is_empty() {
            return Ok(Response::new(all));
        }
        request.page_token = page.next_page_token;
    }
    Err(endless())
}

/// All pauses, page by page.
pub(crate) async fn pauses(admin: &mut Admin) -> Result<Response<Vec<Pause>>, Status> {
    let mut request = ListPausesRequest { page_size: PAGE_SIZE, ..Default::default() };
    let mut all = Vec::new();
    for _ in 0..PAGES_MAX {
        let page = admin.list_pauses(request.clone()).await?.into_inner();
        all.extend(page.pauses);
        if page.next_page_token.is_empty() {
            return Ok(Response::new(all));
        }
        request.page_token = page.next_page_token;
    }
    Err(endless())
}

/// All guards, page by page.
pub(crate) async fn guards(admin: &mut Admin) -> Result<Response<Vec<Guard>>, Status> {
    let mut request = ListGuardsRequest { page_size: PAGE_SIZE, ..Default::default() };
    let mut all = Vec::new();
    for _ in 0..PAGES_MAX {
        let page = admin.list_guards(request.clone()).await?.into_inner();
        all.extend(page.guards);
        if page.next_page_token.is_empty() {
            return Ok(Response::new(all));
        }
        request.page_token = page.next_page_token;
    }
    Err(endless())
}

/// The error about an answer whose pages do not end.
pub(crate) fn endless() -> Status {
    Status::resource_exhausted(format!("the answer has more than {PAGES_MAX} pages: narrow the question"))
}

/// A call's error ends a command.
impl From<Status> for Failure {
    fn from(status: Status) -> Failure {
        let sentence = said(&status);
        if status.code() == Code::FailedPrecondition {
            Failure::Refused(sentence)
        } else if status.code() == Code::InvalidArgument {
            Failure::Usage(sentence)
        } else if is_strange(&status) {
            Failure::Other(Strange(sentence).into())
        } else {
            Failure::Other(anyhow::Error::msg(sentence))
        }
    }
}

/// An error that a server of another protocol leads to. A graph service gives a reason with each of its errors.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Strange(String);

fn is_strange(status: &Status) -> bool {
    let is_code = matches!(status.code(), Code::Unknown | Code::Internal | Code::Unimplemented);
    status.source().is_some() || (is_code && status.get_details_error_info().is_none())
}

/// The result of the first call to this address, at which another server may answer.
pub(crate) fn first<T>(address: &str, answer: Result<T, Failure>) -> Result<T, Failure> {
    match answer {
        Err(Failure::Other(error)) if error.is::<Strange>() => Err(Failure::Other(anyhow::anyhow!(
            "{address} does not answer as a graph service (is it the admin port, or the API server?): {error}"
        ))),
        answer => answer,
    }
}

/// The message of a status. If the library's own message only says that a connection broke, the innermost cause.
pub(crate) fn said(status: &Status) -> String {
    match status.source() {
        Some(cause) => format!("the connection to the graph service broke: {}", innermost(cause)),
        None => status.message().to_owned(),
    }
}

/// The reason of an error of the graph service. `None` from a proxy, and for a reason that this version does not know.
pub(crate) fn reason(status: &Status) -> Option<ErrorReason> {
    error_reason::parse(&status.get_details_error_info()?.reason)
}

/// Makes a call with a time limit.
pub(crate) async fn within<T>(call: impl Future<Output = Result<Response<T>, Status>>) -> Result<T, Failure> {
    match timeout(ANSWER_WITHIN, call).await {
        Ok(answer) => Ok(answer?.into_inner()),
        Err(_) => {
            let seconds = ANSWER_WITHIN.as_secs();
            Err(Failure::Other(anyhow::anyhow!("the graph service does not answer within {seconds} s")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use executor_service::connect_over;
    use http_body_util::{BodyExt as _, Full};
    use hyper::server::conn::http2;
    use hyper_util::rt::{TokioExecutor, TokioIo};
    use prost::Message as _;
    use proto::admin::v1beta1::ListGuardsResponse;
    use std::convert::Infallible;
    use std::future::ready;
    use tokio::task::JoinSet;

    /// A graph service whose answers have another page, always.
    async fn endless(served: &mut JoinSet<Result<(), hyper::Error>>) -> Channel {
        let (near, far) = tokio::io::duplex(1 << 16);
        let page = ListGuardsResponse { next_page_token: "again".to_owned(), ..ListGuardsResponse::default() };
        let page = page.encode_to_vec();
        let mut frame = vec![0];
        frame.extend(u32::try_from(page.len()).unwrap().to_be_bytes());
        frame.extend(page);
        let frame = bytes::Bytes::from(frame);
        let service = hyper::service::service_fn(move |request: http::Request<hyper::body::Incoming>| {
            let fine = http::HeaderMap::from_iter([(http::HeaderName::from_static("grpc-status"), 0.into())]);
            let body = Full::new(frame.clone()).with_trailers(ready(Some(Ok::<_, Infallible>(fine))));
            let answer = http::Response::builder().header("content-type", "application/grpc").body(body);
            async move {
                request.into_body().collect().await.unwrap();
                answer
            }
        });
        served.spawn(http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(far), service));
        connect_over("localhost:7450", near).await.map(Channel::from).unwrap()
    }

    #[test]
    fn another_server_at_the_address_is_named() {
        let first = |status: Status| match first("127.0.0.1:7451", Err::<(), _>(status.into())) {
            Err(Failure::Other(error)) => error.to_string(),
            other => panic!("{other:?}"),
        };
        let foreign = "127.0.0.1:7451 does not answer as a graph service (is it the admin port, or the API server?): ";
        let mut broken = Status::unavailable("transport error");
        broken.set_source(std::sync::Arc::new(std::io::Error::other("a")));
        for status in [Status::internal("a"), Status::unimplemented("a"), broken] {
            let said = first(status);
            assert!(said.starts_with(foreign) && said.ends_with('a'), "{said}");
        }
        let details = tonic_types::ErrorDetails::with_error_info("STOPPING", "ownergraph.dev", []);
        assert_eq!(first(Status::with_error_details(Code::Internal, "a", details)), "a");
        assert_eq!(first(Status::unavailable("a")), "a");
    }

    #[tokio::test]
    async fn an_answer_that_never_ends_is_an_error() {
        let mut served = JoinSet::new();
        let refused =
            timeout(Duration::from_secs(60), guards(&mut Admin::new(endless(&mut served).await))).await.unwrap();
        let refused = refused.unwrap_err().message().to_owned();
        assert!(refused.contains("has more than"), "{refused}");
    }
}
