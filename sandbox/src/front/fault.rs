//! Injected faults: requests that a predicate matches get the answer of a broken server.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The parts of a request that a fault's predicate can read.
#[derive(Debug, Clone, Copy)]
pub struct Attempt<'a> {
    /// `GET`, `LIST`, `WATCH`, `POST`, `PUT`, `PATCH`, `DELETE`, `DELETECOLLECTION`.
    pub verb: &'static str,
    pub group: &'a str,
    /// Empty for a non-resource path.
    pub resource: &'a str,
    pub namespace: &'a str,
    /// Empty for a collection.
    pub name: &'a str,
    pub path: &'a str,
}

/// The answer to a request that a fault matches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FaultAnswer {
    /// A Status with this code, reason and message, without details.
    Status { code: u16, reason: &'static str, message: String },
    /// Any body of any type.
    Body { code: u16, content_type: &'static str, body: String },
    /// The request is carried out, and answered after this time.
    Delay(Duration),
    /// The request is carried out, and its answer is lost: the connection hangs until the client gives up.
    Lose,
}

impl FaultAnswer {
    /// 403.
    pub fn forbidden() -> Self {
        Self::Status { code: 403, reason: "Forbidden", message: "forbidden: this request is refused".to_owned() }
    }

    /// 500.
    pub fn internal_error() -> Self {
        Self::Status { code: 500, reason: "InternalError", message: "Internal error occurred".to_owned() }
    }

    /// 503 in plain text, as from an aggregated API whose backend is down.
    pub fn unavailable() -> Self {
        Self::Body { code: 503, content_type: PLAIN, body: "service unavailable\n".to_owned() }
    }

    /// 404 in plain text, as for a group that is not served.
    pub fn page_not_found() -> Self {
        Self::Body { code: 404, content_type: PLAIN, body: "404 page not found\n".to_owned() }
    }

    /// 404 as a Status without details, as for a resource that is not served.
    pub fn resource_not_served() -> Self {
        let message = "the server could not find the requested resource".to_owned();
        Self::Status { code: 404, reason: "NotFound", message }
    }

    /// 404 as a proxy sends it.
    pub fn html_not_found() -> Self {
        let body = "<html><body><h1>404 Not Found</h1></body></html>\n".to_owned();
        Self::Body { code: 404, content_type: "text/html", body }
    }
}

pub(crate) const PLAIN: &str = "text/plain; charset=utf-8";

/// Matching requests, and their answer.
#[derive(Clone)]
pub struct Fault {
    matches: Arc<dyn Fn(&Attempt<'_>) -> bool + Send + Sync>,
    answer: FaultAnswer,
    /// The fault ends after this many matches; `None`: never.
    remaining: Option<u64>,
}

impl Fault {
    pub fn new(matches: impl Fn(&Attempt<'_>) -> bool + Send + Sync + 'static, answer: FaultAnswer) -> Self {
        Self { matches: Arc::new(matches), answer, remaining: None }
    }

    /// Ends the fault after this many requests.
    pub fn times(mut self, times: u64) -> Self {
        self.remaining = Some(times);
        self
    }
}

impl fmt::Debug for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fault")
            .field("answer", &self.answer)
            .field("remaining", &self.remaining)
            .finish_non_exhaustive()
    }
}

/// An injected fault, to lift it later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FaultId(u64);

#[derive(Default)]
pub(crate) struct Faults {
    last: u64,
    faults: Vec<(FaultId, Fault)>,
}

impl Faults {
    pub(crate) fn add(&mut self, fault: Fault) -> FaultId {
        self.last += 1;
        let id = FaultId(self.last);
        self.faults.push((id, fault));
        id
    }

    pub(crate) fn remove(&mut self, id: FaultId) {
        self.faults.retain(|(known, _)| *known != id);
    }

    /// The answers of all matching faults, in the order of injection.
    pub(crate) fn answers(&mut self, attempt: &Attempt<'_>) -> Vec<FaultAnswer> {
        let mut answers = Vec::new();
        for (_, fault) in &mut self.faults {
            if fault.remaining == Some(0) || !(fault.matches)(attempt) {
                continue;
            }
            if let Some(remaining) = &mut fault.remaining {
                *remaining -= 1;
            }
            answers.push(fault.answer.clone());
        }
        self.faults.retain(|(_, fault)| fault.remaining != Some(0));
        answers
    }
}
