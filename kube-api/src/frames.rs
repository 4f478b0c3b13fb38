//! Splits chunks into frames. A protobuf watch has one event in each frame, after a length of four bytes. A chunk may
//! end at any byte.

use bytes::{Buf, Bytes, BytesMut};
use futures::TryStreamExt;

use super::call::{BodyStream, CallError};

/// A length, most significant byte first.
const HEAD_BYTES: usize = 4;

/// A frame exceeds the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the stream announces a frame of {announced_bytes} bytes; at most {limit_bytes} are allowed")]
struct FrameTooLong {
    announced_bytes: u64,
    limit_bytes: usize,
}

/// Splits chunks into frames. Only a frame that continues in the next chunk is copied.
#[derive(Debug)]
struct Splitter {
    chunk: Bytes,
    /// A frame that began in an earlier chunk, including its length.
    begun: BytesMut,
    limit_bytes: usize,
}

impl Splitter {
    /// `limit_bytes` is the longest frame without its length.
    fn new(limit_bytes: usize) -> Splitter {
        Splitter { chunk: Bytes::new(), begun: BytesMut::new(), limit_bytes }
    }

    /// Adds a chunk. Call this when the previous chunk has no whole frame left.
    fn push(&mut self, chunk: Bytes) {
        self.chunk = chunk;
    }

    /// The next whole frame without its length; `None` until another chunk is pushed. After an error the stream is
    /// unusable.
    fn next_frame(&mut self) -> Result<Option<Bytes>, FrameTooLong> {
        if self.begun.is_empty() {
            let Some(bytes) = self.announced(&self.chunk)?.filter(|bytes| *bytes <= self.chunk.len()) else {
                self.begin();
                return Ok(None);
            };
            let mut frame = self.chunk.split_to(bytes);
            frame.advance(HEAD_BYTES);
            return Ok(Some(frame));
        }
        self.fill_up_to(HEAD_BYTES);
        let Some(bytes) = self.announced(&self.begun)? else { return Ok(None) };
        self.fill_up_to(bytes);
        if self.begun.len() < bytes {
            return Ok(None);
        }
        let mut frame = self.begun.split().freeze();
        frame.advance(HEAD_BYTES);
        Ok(Some(frame))
    }

    /// The size of the frame that begins here, including its length. It is checked before the frame itself arrives, so
    /// that the reader never waits for a wrong length.
    fn announced(&self, bytes: &[u8]) -> Result<Option<usize>, FrameTooLong> {
        let Some(head) = bytes.first_chunk::<HEAD_BYTES>() else { return Ok(None) };
        let announced = u32::from_be_bytes(*head);
        match usize::try_from(announced) {
            Ok(length) if length <= self.limit_bytes => Ok(Some(HEAD_BYTES + length)),
            Ok(_) | Err(_) => Err(FrameTooLong { announced_bytes: announced.into(), limit_bytes: self.limit_bytes }),
        }
    }

    /// Keeps the rest of the chunk as the beginning of a frame.
    fn begin(&mut self) {
        self.begun.extend_from_slice(&self.chunk);
        self.chunk.clear();
    }

    fn fill_up_to(&mut self, bytes: usize) {
        let missing = bytes.saturating_sub(self.begun.len()).min(self.chunk.len());
        self.begun.extend_from_slice(&self.chunk.split_to(missing));
    }

    /// Whether a frame has begun and not ended. Call this when no whole frame is left.
    fn is_mid_frame(&self) -> bool {
        !self.begun.is_empty()
    }
}

/// The frames of a stream.
#[derive(Debug)]
pub struct Frames {
    body: BodyStream,
    splitter: Splitter,
}

impl Frames {
    /// `limit_bytes` is the longest frame.
    pub fn new(body: BodyStream, limit_bytes: usize) -> Frames {
        Frames { body, splitter: Splitter::new(limit_bytes) }
    }

    /// The next frame, or `None` at a regular end. An end inside a frame is an error. Cancel safe: a partial frame is
    /// kept.
    pub async fn next(&mut self) -> Result<Option<Bytes>, CallError> {
        loop {
            match self.splitter.next_frame() {
                Ok(Some(frame)) => return Ok(Some(frame)),
                Ok(None) => {}
                Err(too_long) => return Err(CallError::Ambiguous { cause: too_long.to_string() }),
            }
            match self.body.try_next().await? {
                Some(chunk) => self.splitter.push(chunk),
                None if self.splitter.is_mid_frame() => {
                    return Err(CallError::Ambiguous { cause: "the stream ended inside a frame".to_owned() });
                }
                None => return Ok(None),
            }
        }
    }
}

#[cfg(test)]
mod tests;
