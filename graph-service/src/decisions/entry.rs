//! The messages of the shared log, and their names.

use super::kept::Record;
use engine::elector::NUMBER_MAX;
use engine::work::Term;
use prost::Message as _;
use prost::bytes::Bytes;
use proto::convert::{EVENT_MAX_BYTES, bounded, stub};
use proto::decision::v1beta1::DecisionEvent;
use proto::decision::v1beta1::watch_decisions_response::Gap;
use std::fmt;

/// One input of the log from the collector's task.
#[derive(Debug)]
pub(super) enum Step {
    /// A term begins, at this time.
    Begin(Term, prost_types::Timestamp),
    End,
    Event(Noted),
}

/// An event to be written to the log.
#[derive(Clone, Debug)]
pub(super) struct Noted {
    pub(super) event: Bytes,
    pub(super) time: Option<prost_types::Timestamp>,
}

/// Header that names the type of a message.
pub(super) const RECORD_HEADER: &str = "Ownergraph-Record";
const EVENT: &str = "event";
const LOSS: &str = "loss";

/// One message of the stream.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) name: Name,
    pub(super) what: What,
}

#[derive(Clone, Debug)]
pub(super) enum What {
    Event(Noted),
    /// The short form of an event that is too large for the log.
    Stub(Noted),
    Loss(Loss),
}

/// Consecutive events that could not be written.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Loss {
    pub(super) events: u64,
    pub(super) since: Option<prost_types::Timestamp>,
    pub(super) until: Option<prost_types::Timestamp>,
}

/// The unique name of a message in the stream. A loss has the name of the last event that it stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Name {
    pub(super) term: Term,
    /// The number of the event in its term, from 1.
    pub(super) number: u64,
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A header has one line.
        let election = self.term.election.replace(char::is_control, "_");
        write!(f, "{election}.{}.{}", self.term.number, self.number)
    }
}

impl Name {
    /// Parses the output of `Display`.
    pub(super) fn parse(text: &str) -> Option<Name> {
        let (rest, number) = text.rsplit_once('.')?;
        let (election, term) = rest.rsplit_once('.')?;
        // Another writer wrote a name with a number that no Lease can have.
        let number_of_term = term.parse().ok().filter(|&number| number < NUMBER_MAX)?;
        let term = Term { election: election.into(), number: number_of_term };
        Some(Name { term, number: number.parse().ok()? })
    }
}

impl What {
    /// The short form of an event that the log refused as too large.
    pub(super) fn shortened(self) -> What {
        match self {
            What::Event(Noted { event, time }) => {
                let left = stub(DecisionEvent::decode(event).unwrap_or_default());
                What::Stub(Noted { event: left.encode_to_vec().into(), time })
            }
            What::Stub(noted) => What::Loss(Loss::of(&noted)),
            What::Loss(loss) => What::Loss(loss),
        }
    }
}

impl Loss {
    pub(super) fn of(noted: &Noted) -> Loss {
        Loss { events: 1, since: noted.time, until: noted.time }
    }

    pub(super) fn add(&mut self, noted: &Noted) {
        self.events += 1;
        self.until = noted.time;
    }
}

impl Entry {
    /// Length of the payload, for the memory bound.
    pub(super) fn len(&self) -> usize {
        match &self.what {
            What::Event(noted) | What::Stub(noted) => noted.event.len(),
            What::Loss(_) => 0,
        }
    }

    pub(super) fn payload(&self) -> Bytes {
        match &self.what {
            What::Event(noted) | What::Stub(noted) => noted.event.clone(),
            What::Loss(Loss { events, since, until }) => {
                let gap = Gap { lost: *events, since: *since, until: *until, ..Gap::default() };
                gap.encode_to_vec().into()
            }
        }
    }

    /// The value of [`RECORD_HEADER`].
    pub(super) fn record(&self) -> &'static str {
        match self.what {
            What::Event(_) | What::Stub(_) => EVENT,
            What::Loss(_) => LOSS,
        }
    }
}

/// Reads a message of the stream. A message that cannot be read came from another writer, and is reported as a loss.
pub(super) fn read(header: Option<&str>, payload: Bytes) -> Record {
    match header {
        Some(EVENT) => match DecisionEvent::decode(payload.clone()) {
            Ok(_) if payload.len() <= EVENT_MAX_BYTES => Record::Event(payload),
            Ok(event) => Record::Event(bounded(event).encode_to_vec().into()),
            Err(_) => Record::Loss(Bytes::new()),
        },
        Some(LOSS) => {
            let Gap { lost, since, until, .. } = Gap::decode(payload).unwrap_or_default();
            Record::Loss(Gap { lost, since, until, ..Gap::default() }.encode_to_vec().into())
        }
        Some(_) | None => Record::Loss(Bytes::new()),
    }
}
