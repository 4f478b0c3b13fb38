//! Pages of the log. The log only grows, so a later page needs only a position.

use crate::grpc::status;
use engine::object::Digest;
use prost::Message;
use tonic::Status;

/// A position in the list of pages. Its token is these three numbers, in hex.
#[derive(Clone, Copy, Debug)]
pub(in crate::grpc) struct Place {
    question: u64,
    log: u64,
    /// The page has events before this position.
    pub(super) before: u64,
}

impl Place {
    /// Reads a page token. `question` is the request without its page fields, and `newest` the last position of the
    /// log. An empty token means the end of the log.
    pub(super) fn of(question: &impl Message, token: &str, log_id: &str, newest: u64) -> Result<Place, Status> {
        let question = Digest::of(question.encode_to_vec());
        let log = Digest::of(log_id.bytes());
        if token.is_empty() {
            return Ok(Place { question, log, before: newest + 1 });
        }
        let place = parse(token).filter(|place| place.before <= newest || place.log != log);
        let place = place.ok_or_else(|| status::token_malformed("page_token"))?;
        if place.question != question {
            return Err(status::page_token_mismatch());
        }
        if place.log != log {
            return Err(status::page_token_expired());
        }
        Ok(place)
    }

    /// The token of the page before this position.
    pub(super) fn token(self, before: u64) -> String {
        let Place { question, log, .. } = self;
        format!("{question:016x}{log:016x}{before:016x}")
    }
}

pub(in crate::grpc) fn parse(token: &str) -> Option<Place> {
    let token = Some(token).filter(|token| token.is_ascii() && token.len() == 3 * 16)?;
    let number = |at: usize| u64::from_str_radix(&token[at..at + 16], 16).ok();
    Some(Place { question: number(0)?, log: number(16)?, before: number(32)? })
}
