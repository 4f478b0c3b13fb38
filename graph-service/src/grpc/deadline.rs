//! Ends an answer when its `grpc-timeout` is over. The library checks the timeout only until the answer begins.

use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::{HeaderMap, Request, Response};
use http_body::{Frame, SizeHint};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep_until};
use tonic::Status;
use tonic::body::Body;
use tower::{Layer, Service};

const TIMEOUT: &str = "grpc-timeout";
/// Maximum number of digits that the gRPC protocol allows.
const DIGITS_MAX: usize = 8;

/// The layer.
#[derive(Clone, Copy, Debug)]
pub(super) struct DeadlineLayer;

impl<S> Layer<S> for DeadlineLayer {
    type Service = Ending<S>;

    fn layer(&self, inner: S) -> Ending<S> {
        Ending { inner }
    }
}

/// A service whose answers end at the caller's deadline.
#[derive(Clone, Debug)]
pub(super) struct Ending<S> {
    inner: S,
}

impl<S, B> Service<Request<B>> for Ending<S>
where
    S: Service<Request<B>, Response = Response<Body>>,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Response<Body>, S::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let end = timeout(request.headers()).and_then(|timeout| Instant::now().checked_add(timeout));
        let answer = self.inner.call(request);
        async move {
            let response = answer.await?;
            Ok(match end {
                Some(end) => response.map(|inner| Body::new(Until { inner, end: Some(Box::pin(sleep_until(end))) })),
                None => response,
            })
        }
        .boxed()
    }
}

/// The timeout in a call's headers; `None` if there is no valid one.
fn timeout(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(TIMEOUT)?.to_str().ok()?;
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let plain = (1..=DIGITS_MAX).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
    let count: u64 = digits.parse().ok().filter(|_| plain)?;
    match unit {
        "H" => Some(Duration::from_secs(count * 3600)),
        "M" => Some(Duration::from_secs(count * 60)),
        "S" => Some(Duration::from_secs(count)),
        "m" => Some(Duration::from_millis(count)),
        "u" => Some(Duration::from_micros(count)),
        "n" => Some(Duration::from_nanos(count)),
        _ => None,
    }
}

/// An answer with a deadline.
struct Until {
    inner: Body,
    /// `None` after the deadline.
    end: Option<Pin<Box<Sleep>>>,
}

impl http_body::Body for Until {
    type Data = Bytes;
    type Error = Status;

    /// A frame has whole messages, so a stream never ends within a message.
    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let Some(end) = &mut self.end else { return Poll::Ready(None) };
        if end.poll_unpin(context).is_ready() {
            self.end = None;
            // The dropped body notifies the handler that its reader is gone.
            self.inner = Body::empty();
            let mut trailers = HeaderMap::new();
            Status::deadline_exceeded("the deadline of the call has passed").add_header(&mut trailers)?;
            return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
        }
        let frame = std::task::ready!(Pin::new(&mut self.inner).poll_frame(context));
        if !matches!(&frame, Some(Ok(frame)) if frame.is_data()) {
            self.end = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.end.is_none() || self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt as _;
    use tower::ServiceExt as _;

    #[test]
    fn timeouts_are_read_as_the_protocol_has_them() {
        let read = |text: &str| timeout(&HeaderMap::from_iter([(TIMEOUT.parse().unwrap(), text.parse().unwrap())]));
        let cases = [
            ("1H", Duration::from_secs(3600)),
            ("2M", Duration::from_secs(120)),
            ("3S", Duration::from_secs(3)),
            ("99999999m", Duration::from_millis(99_999_999)),
            ("5u", Duration::from_micros(5)),
            ("6n", Duration::from_nanos(6)),
        ];
        for (text, expected) in cases {
            assert_eq!(read(text), Some(expected));
        }
        for odd in ["", "S", "1", "1s", "-1S", "+1S", "123456789S", "1 S", "1€"] {
            let value = http::HeaderValue::from_bytes(odd.as_bytes()).unwrap();
            assert_eq!(timeout(&HeaderMap::from_iter([(TIMEOUT.parse().unwrap(), value)])), None, "{odd}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_that_goes_on_ends_when_its_time_is_over() {
        let endless = tower::service_fn(async |_: Request<()>| {
            let frames = futures::stream::once(async { Ok::<_, Status>(Frame::data(Bytes::from_static(b"one"))) });
            let frames = futures::StreamExt::chain(frames, futures::stream::pending());
            Ok::<_, Status>(Response::new(Body::new(http_body_util::StreamBody::new(frames))))
        });
        let request = Request::builder().header(TIMEOUT, "30S").body(()).unwrap();
        let began = Instant::now();
        let response = DeadlineLayer.layer(endless).oneshot(request).await.unwrap();
        let whole = response.into_body().collect().await.unwrap();
        assert_eq!(began.elapsed().as_secs(), 30);
        let status = Status::from_header_map(whole.trailers().unwrap()).unwrap();
        assert_eq!(status.code(), tonic::Code::DeadlineExceeded);
        assert_eq!(whole.to_bytes(), "one");
    }
}
