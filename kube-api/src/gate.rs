//! The last check before a request is sent.
//!
//! Between the decision to send a request and its first byte, credentials, the connection pool, DNS, TCP and TLS can
//! take seconds, for example while an API server fails over. A [`Gate`] in a request's extensions is checked when the
//! connection is open: HTTP/1.1 polls the body before it flushes the head, HTTP/2 before it queues the first DATA
//! frame. If the gate refuses, the server may see the head of the request, but never its body. API servers carry out no
//! DELETE and no PATCH without the whole body.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::Request;
use http_body::{Frame, SizeHint};
use kube::client::Body;
use tower::BoxError;

/// Decides once whether a request may be sent.
#[derive(Clone)]
pub struct Gate(Arc<Mutex<State>>);

enum State {
    Unasked(Box<dyn FnOnce() -> bool + Send>),
    Asked { may_leave: bool },
}

/// A gate refused: the request was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the request was withheld before it was sent")]
pub struct Withheld;

impl Gate {
    pub fn new(may_leave: impl FnOnce() -> bool + Send + 'static) -> Gate {
        Gate(Arc::new(Mutex::new(State::Unasked(Box::new(may_leave)))))
    }

    /// Decides, or repeats the decision.
    pub fn pass(&self) -> Result<(), Withheld> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let may_leave = match std::mem::replace(&mut *state, State::Asked { may_leave: false }) {
            State::Unasked(ask) => ask(),
            State::Asked { may_leave } => may_leave,
        };
        *state = State::Asked { may_leave };
        if may_leave { Ok(()) } else { Err(Withheld) }
    }

    /// Whether the gate has refused.
    pub fn has_refused(&self) -> bool {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        matches!(*state, State::Asked { may_leave: false })
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate").finish_non_exhaustive()
    }
}

/// A body that checks the gate of its request before its first byte.
#[derive(Debug)]
pub struct Gated {
    body: Body,
    gate: Option<Gate>,
}

/// Puts the gate of a request before its body. Place this layer directly above the HTTP client, below all layers that
/// may wait.
pub fn gated(request: Request<Body>) -> Request<Gated> {
    let gate = request.extensions().get::<Gate>().cloned();
    request.map(|body| Gated { body, gate })
}

impl http_body::Body for Gated {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Some(gate) = self.gate.take()
            && let Err(withheld) = gate.pass()
        {
            return Poll::Ready(Some(Err(withheld.into())));
        }
        Pin::new(&mut self.body).poll_frame(context).map_err(BoxError::from)
    }

    fn is_end_stream(&self) -> bool {
        self.gate.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
