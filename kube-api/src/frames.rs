//! Frames out of chunks: a protobuf watch is one event per frame, each after its length in four bytes, cut by the network anywhere.

use bytes::{Buf, Bytes, BytesMut};
use futures::TryStreamExt;

use super::call::{BodyStream, CallError};

/// A length, most significant byte first.
const HEAD_BYTES: usize = 4;

/// A frame that is longer than its reader takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a frame of {announced_bytes} bytes is announced, and at most {limit_bytes} are taken")]
struct FrameTooLong {
    announced_bytes: u64,
    limit_bytes: usize,
}

/// Cuts chunks into frames. What is whole within a chunk stays where it is; only a frame that goes on in the next chunk is copied.
#[derive(Debug)]
struct Splitter {
    chunk: Bytes,
    /// A frame that began in an earlier chunk, from its length on.
    begun: BytesMut,
    limit_bytes: usize,
}

impl Splitter {
    /// `limit_bytes` is the longest frame, its length not counted.
    fn new(limit_bytes: usize) -> Splitter {
        Splitter { chunk: Bytes::new(), begun: BytesMut::new(), limit_bytes }
    }

    /// For when the chunk before has no whole frame left.
    fn push(&mut self, chunk: Bytes) {
        self.chunk = chunk;
    }

    /// The next whole frame without its length; `None` until more is pushed. After an error the stream cannot be followed any further.
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

    /// The bytes of the frame that begins here, with its length. Known before anything of the frame itself has come, so that a wrong
    /// length is not waited for.
    fn announced(&self, bytes: &[u8]) -> Result<Option<usize>, FrameTooLong> {
        let Some(head) = bytes.first_chunk::<HEAD_BYTES>() else { return Ok(None) };
        let announced = u32::from_be_bytes(*head);
        match usize::try_from(announced) {
            Ok(length) if length <= self.limit_bytes => Ok(Some(HEAD_BYTES + length)),
            Ok(_) | Err(_) => Err(FrameTooLong { announced_bytes: announced.into(), limit_bytes: self.limit_bytes }),
        }
    }

    /// The rest of the chunk is the beginning of a frame.
    fn begin(&mut self) {
        self.begun.extend_from_slice(&self.chunk);
        self.chunk.clear();
    }

    fn fill_up_to(&mut self, bytes: usize) {
        let missing = bytes.saturating_sub(self.begun.len()).min(self.chunk.len());
        self.begun.extend_from_slice(&self.chunk.split_to(missing));
    }

    /// Whether a frame has begun that has not ended. Asked when no whole frame is left.
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

    /// The next frame, or `None` where the stream ended well. A stream that ends inside a frame has lost something, so that is an
    /// error. Cancel safe: a frame half read stays.
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
