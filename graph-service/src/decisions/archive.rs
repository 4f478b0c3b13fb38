//! What this replica does not have in memory any more is read from the stream, message by message.

use super::connection::{Connection, with_source};
use super::entry::{RECORD_HEADER, read};
use super::kept::Record;
use super::{Most, mirror};
use async_nats::jetstream::stream::{RawMessageErrorKind, Stream};
use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _, TryStreamExt as _};
use prost::bytes::Bytes;
use std::fmt;

/// Requests under way at once for one reader.
const AT_ONCE: usize = 32;

/// Whatever has more of the log than this replica.
pub(super) trait Archive: fmt::Debug + Send + Sync {
    /// What stands at so many positions of that log, from this one on.
    fn read<'a>(&'a self, log_id: &'a str, from: u64, max: Most) -> BoxFuture<'a, Result<Archived, String>>;
}

/// A part of the stream.
#[derive(Debug)]
pub(super) struct Archived {
    /// The oldest that the stream has.
    pub(super) first: u64,
    /// Nothing, where the part begins before that.
    pub(super) records: Vec<Record>,
}

impl Archive for Connection {
    fn read<'a>(&'a self, log_id: &'a str, from: u64, max: Most) -> BoxFuture<'a, Result<Archived, String>> {
        async move {
            let stream = self.stream().await?;
            let info = stream.cached_info();
            if !mirror::is_of(log_id, info) {
                return Err("it is another stream by now".to_owned());
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

/// What is not there although older messages are was deleted by somebody: a loss.
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
