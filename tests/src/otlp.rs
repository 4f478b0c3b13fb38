//! A receiver of traces. It accepts spans by OTLP over gRPC as long as it exists.

use anyhow::Context as _;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{TraceService, TraceServiceServer};
use opentelemetry_proto::tonic::collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse};
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::codec::CompressionEncoding;
use tonic::metadata::MetadataMap;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

/// The maximum number of kept spans. Further spans are only counted.
const KEPT_MAX: usize = 10_000;

/// The receiver of traces.
#[derive(Debug)]
pub struct Collector {
    port: u16,
    taken: watch::Receiver<Vec<Taken>>,
    _serving: JoinSet<()>,
}

/// A span, and the service that sent it.
#[derive(Clone, Debug)]
pub struct Taken {
    /// The attribute `service.name`.
    pub service: String,
    pub span: Span,
    /// The headers of the request with the span.
    pub headers: Arc<MetadataMap>,
}

impl Taken {
    /// Returns the text or number of an attribute. The text is empty if the span has no such attribute.
    pub fn attribute(&self, name: &str) -> String {
        text(&self.span.attributes, name)
    }
}

fn text(attributes: &[KeyValue], name: &str) -> String {
    let found = attributes.iter().find(|attribute| attribute.key == name);
    match found.and_then(|attribute| attribute.value.as_ref()?.value.as_ref()) {
        Some(Value::StringValue(text)) => text.clone(),
        Some(Value::IntValue(number)) => number.to_string(),
        Some(other) => format!("{other:?}"),
        None => String::new(),
    }
}

struct Sink(watch::Sender<Vec<Taken>>);

#[tonic::async_trait]
impl TraceService for Sink {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let headers = Arc::new(request.metadata().clone());
        self.0.send_modify(|taken| {
            for of in request.into_inner().resource_spans {
                let service = of.resource.map(|resource| text(&resource.attributes, "service.name"));
                let service = service.unwrap_or_default();
                let spans = of.scope_spans.into_iter().flat_map(|scope| scope.spans);
                let room = KEPT_MAX.saturating_sub(taken.len());
                let of = |span| Taken { service: service.clone(), span, headers: Arc::clone(&headers) };
                taken.extend(spans.take(room).map(of));
            }
        });
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

impl Collector {
    /// Starts a receiver on loopback.
    pub async fn start() -> anyhow::Result<Collector> {
        let listener = TcpListener::bind("127.0.0.1:0").await.context("a port for the collector of traces")?;
        let port = listener.local_addr()?.port();
        let (sender, taken) = watch::channel(Vec::new());
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            let service = TraceServiceServer::new(Sink(sender)).accept_compressed(CompressionEncoding::Gzip);
            let server = Server::builder().add_service(service);
            if let Err(error) = server.serve_with_incoming(TcpListenerStream::new(listener)).await {
                tracing::error!(%error, "the collector of traces has failed");
            }
        });
        Ok(Collector { port, taken, _serving: serving })
    }

    /// Returns the address as `HOST:PORT`.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Returns the value for `--otlp-endpoint`.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address())
    }

    /// Returns the spans so far.
    pub fn spans(&self) -> Vec<Taken> {
        self.taken.borrow().clone()
    }

    /// Waits until the spans satisfy `enough`.
    ///
    /// # Errors
    /// The time limit passed. The text names every span.
    pub async fn until(&self, within: Duration, enough: impl Fn(&[Taken]) -> bool) -> anyhow::Result<Vec<Taken>> {
        let mut taken = self.taken.clone();
        let found =
            timeout(within, taken.wait_for(|taken| enough(taken))).await.map(|found| found.map(|all| Vec::clone(&all)));
        found
            .with_context(|| {
                let lines: Vec<String> =
                    self.spans().iter().map(|taken| format!("{} {}", taken.service, taken.span.name)).collect();
                format!("not all spans came in {within:?}:\n{}", lines.join("\n"))
            })?
            .context("the collector has ended")
    }
}
