//! Splits chunks into lines. A JSON watch has one event on each line. A chunk may end at any byte.

use bytes::{Bytes, BytesMut};
use futures::TryStreamExt;

use super::call::{BodyStream, CallError};

/// A line exceeds the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a line of the stream is longer than {limit_bytes} bytes")]
struct LineTooLong {
    limit_bytes: usize,
}

/// Splits chunks into lines. Holds at most one partial line and the last chunk.
#[derive(Debug)]
struct Splitter {
    buffer: BytesMut,
    /// The number of bytes of the buffer that are known to have no line end.
    searched: usize,
    limit_bytes: usize,
}

impl Splitter {
    /// `limit_bytes` is the longest line without its end.
    fn new(limit_bytes: usize) -> Splitter {
        Splitter { buffer: BytesMut::new(), searched: 0, limit_bytes }
    }

    fn push(&mut self, chunk: &[u8]) {
        self.buffer.extend_from_slice(chunk);
    }

    /// The next whole line without its `\n` (or `\r\n`). Empty lines are left out. `None` until another chunk is
    /// pushed. After an error the stream is unusable.
    fn next_line(&mut self) -> Result<Option<Bytes>, LineTooLong> {
        loop {
            let end = self.buffer[self.searched..].iter().position(|byte| *byte == b'\n');
            let Some(end) = end.map(|offset| self.searched + offset) else {
                self.searched = self.buffer.len();
                return if self.searched > self.limit_bytes { Err(self.too_long()) } else { Ok(None) };
            };
            self.searched = 0;
            if end > self.limit_bytes {
                return Err(self.too_long());
            }
            let mut line = self.buffer.split_to(end + 1);
            line.truncate(end);
            if line.last() == Some(&b'\r') {
                line.truncate(end - 1);
            }
            if !line.is_empty() {
                return Ok(Some(line.freeze()));
            }
        }
    }

    /// Whether a line has begun and not ended.
    fn is_mid_line(&self) -> bool {
        !self.buffer.is_empty()
    }

    fn too_long(&self) -> LineTooLong {
        LineTooLong { limit_bytes: self.limit_bytes }
    }
}

/// The lines of a stream.
#[derive(Debug)]
pub struct Lines {
    body: BodyStream,
    splitter: Splitter,
}

impl Lines {
    /// `limit_bytes` is the longest line.
    pub fn new(body: BodyStream, limit_bytes: usize) -> Lines {
        Lines { body, splitter: Splitter::new(limit_bytes) }
    }

    /// The next line, or `None` at a regular end. An end inside a line is an error. Cancel safe: a partial line is
    /// kept.
    pub async fn next(&mut self) -> Result<Option<Bytes>, CallError> {
        loop {
            match self.splitter.next_line() {
                Ok(Some(line)) => return Ok(Some(line)),
                Ok(None) => {}
                Err(LineTooLong { limit_bytes }) => return Err(CallError::TooLarge { limit_bytes }),
            }
            match self.body.try_next().await? {
                Some(chunk) => self.splitter.push(&chunk),
                None if self.splitter.is_mid_line() => {
                    return Err(CallError::Ambiguous { cause: "the stream ended inside a line".to_owned() });
                }
                None => return Ok(None),
            }
        }
    }
}

#[cfg(test)]
mod tests;
