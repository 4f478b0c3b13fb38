//! Reads from the stream, message by message, the events that this replica no longer has in memory.

use super::connection::{Connection, with_source};
use super::entry::{RECORD_HEADER, read};
use super::kept::Record;
use super::{Most, mirror};
use async_nats::jetstream::stream::{RawMessageErrorKind, Stream};
use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _, TryStreamExt as _};
use prost::bytes::Bytes;
use std::fmt;

/// Maximum number of concurrent requests for one reader.
const AT_ONCE: usize = 32;

/// A source that keeps more of the log than this replica.
pub(super) trait Archive: fmt::Debug + Send + Sync {
    /// The records of that log at the positions from `from` on.
    fn read<'a>(&'a self, log_id: &'a str, from: u64, max: Most) -> BoxFuture<'a, Result<Archived, String>>;
}

/// A part of the stream.
#[derive(Debug)]
pub(super) struct Archived {
    /// The oldest sequence in the stream.
    pub(super) first: u64,
    /// Empty if the part begins before that sequence.
    pub(super) records: Vec<Record>,
}

impl Archive for Connection {
    fn read<'a>(&'a self, log_id: &'a str, from: u64, max: Most) -> BoxFuture<'a, Result<Archived, String>> {
        async move {
            let stream = self.stream().await?;
            let info = stream.cached_info();
            if !mirror::is_of(log_id, info) {
                return Err("the stream has been replaced".to_owned());
            }
            let first = mirror::first(info);
            let count = if from < first { 0 } else { max.events as u64 };
            let messages = futures::stream::iter((from..from + count).map(|sequence| message(&stream, sequence)));
            let mut messages = messages.buffered(AT_ONCE);
            let (mut records, mut fits) = (Vec::new(), max.bytes_left());
            while let Some(record) = messages.try_next().await? {
                if !fits(&&record) {
                    break;
                }
                records.push(record);
            }
            Ok(Archived { first, records })
        }
        .boxed()
    }
}

/// Reads one message. A missing message that is newer than the oldest one was deleted by hand: it is a gap.
async fn message(stream: &Stream, sequence: u64) -> Result<Record, String> {
    match stream.get_raw_message(sequence).await {
        Ok(message) => {
            let header = message.headers.get(RECORD_HEADER);
            Ok(read(header.map(|value| value.as_str()), message.payload))
        }
        Err(error) if error.kind() == RawMessageErrorKind::NoMessageFound => Ok(Record::Loss(Bytes::new())),
        Err(error) => Err(with_source(&error)),
    }
}
