//! Fuzz entry point for messages of the shared log.

use super::entry::{self, Name};
use super::kept::Record;
use prost::Message as _;
use prost::bytes::Bytes;
use proto::decision::v1beta1::DecisionEvent;
use proto::decision::v1beta1::watch_decisions_response::Gap;

/// Reads the first line as the name of a message, and the rest as its payload under each header.
pub(crate) fn log_entry(bytes: &[u8]) {
    let (name, payload) = bytes.split_at(bytes.iter().position(|&byte| byte == b'\n').unwrap_or(0));
    if let Some(name) = std::str::from_utf8(name).ok().and_then(Name::parse) {
        assert_eq!(Name::parse(&name.to_string()).map(|again| again.number), Some(name.number));
    }
    let payload = Bytes::copy_from_slice(payload.get(1..).unwrap_or_default());
    for header in [None, Some("event"), Some("loss"), Some("else")] {
        // A record that the reader accepts must be readable.
        match entry::read(header, payload.clone()) {
            Record::Event(event) => assert!(DecisionEvent::decode(event).is_ok()),
            Record::Loss(gap) => assert!(Gap::decode(gap).is_ok()),
        }
    }
}
