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

/// Cuts chunks into frames. Holds at most one unfinished frame and the last chunk.
#[derive(Debug)]
struct Splitter {
    buffer: BytesMut,
    limit_bytes: usize,
}

impl Splitter {
    /// `limit_bytes` is the longest frame, its length not counted.
    fn new(limit_bytes: usize) -> Splitter {
        Splitter { buffer: BytesMut::new(), limit_bytes }
    }

    fn push(&mut self, chunk: &[u8]) {
        self.buffer.extend_from_slice(chunk);
    }

    /// The next whole frame without its length; `None` until more is pushed. After an error the stream cannot be followed any further.
    fn next_frame(&mut self) -> Result<Option<Bytes>, FrameTooLong> {
        let Some(head) = self.buffer.first_chunk::<HEAD_BYTES>() else { return Ok(None) };
        let announced = u32::from_be_bytes(*head);
        let length = usize::try_from(announced).unwrap_or(usize::MAX);
        // Looked at before anything of the frame has come, so that a wrong length is not waited for.
        if length > self.limit_bytes {
            return Err(FrameTooLong { announced_bytes: announced.into(), limit_bytes: self.limit_bytes });
        }
        if self.buffer.len() - HEAD_BYTES < length {
            return Ok(None);
        }
        self.buffer.advance(HEAD_BYTES);
        Ok(Some(self.buffer.split_to(length).freeze()))
    }

    /// Whether a frame has begun that has not ended.
    fn is_mid_frame(&self) -> bool {
        !self.buffer.is_empty()
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
                Some(chunk) => self.splitter.push(&chunk),
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
