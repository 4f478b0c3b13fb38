//! The gRPC service: generated code, except for the stream, which sends encoded messages.

use super::Decisions;
use crate::grpc::{MESSAGE_MAX_BYTES, stream};
use futures::future::BoxFuture;
use http::{Request, Response};
use proto::decision::v1beta1::decision_service_server::DecisionServiceServer;
use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};
use tonic::body::Body;
use tonic::codec::CompressionEncoding;
use tonic::server::NamedService;
use tower::Service;

const WATCH: &str = "/ownergraph.decision.v1beta1.DecisionService/WatchDecisions";

/// Answers all calls of the service.
#[derive(Clone, Debug)]
pub(in crate::grpc) struct Watching {
    decisions: Arc<Decisions>,
    others: DecisionServiceServer<Decisions>,
}

impl Watching {
    pub(in crate::grpc) fn new(decisions: Decisions) -> Watching {
        let decisions = Arc::new(decisions);
        let others = DecisionServiceServer::from_arc(Arc::clone(&decisions))
            .max_decoding_message_size(MESSAGE_MAX_BYTES)
            .accept_compressed(CompressionEncoding::Gzip)
            .send_compressed(CompressionEncoding::Gzip);
        Watching { decisions, others }
    }
}

impl NamedService for Watching {
    const NAME: &'static str = <DecisionServiceServer<Decisions> as NamedService>::NAME;
}

impl Service<Request<Body>> for Watching {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        if request.uri().path() != WATCH {
            return self.others.call(request);
        }
        let decisions = Arc::clone(&self.decisions);
        let gzip = stream::takes_gzip(request.headers());
        Box::pin(async move {
            let messages = match stream::read(request, MESSAGE_MAX_BYTES).await {
                Ok(request) => decisions.watch(request, gzip).await,
                Err(status) => Err(status),
            };
            Ok(stream::answer(messages, gzip))
        })
    }
}
