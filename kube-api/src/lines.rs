//! Lines out of chunks: a JSON watch is one event per line, cut by the network anywhere.

use bytes::{Bytes, BytesMut};
use futures::TryStreamExt;

use super::call::{BodyStream, CallError};

/// A line that is longer than its reader takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a line of the stream is longer than {limit_bytes} bytes")]
struct LineTooLong {
    limit_bytes: usize,
}

/// Cuts chunks into lines. Holds at most one unfinished line and the last chunk.
#[derive(Debug)]
struct Splitter {
    buffer: BytesMut,
    /// The buffer's first so many bytes are known to hold no line end, so that none is looked at twice.
    searched: usize,
    limit_bytes: usize,
}

impl Splitter {
    /// `limit_bytes` is the longest line, its end not counted.
    fn new(limit_bytes: usize) -> Splitter {
        Splitter { buffer: BytesMut::new(), searched: 0, limit_bytes }
    }

    fn push(&mut self, chunk: &[u8]) {
        self.buffer.extend_from_slice(chunk);
    }

    /// The next whole line without its `\n` (or `\r\n`); empty lines are passed over. `None` until more is pushed. After
    /// an error the stream cannot be followed any further.
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

    /// Whether a line has begun that has not ended.
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

    /// The next line, or `None` where the stream ended well. A stream that ends inside a line has lost something, so that
    /// is an error. Cancel safe: a line half read stays.
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
