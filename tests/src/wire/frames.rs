//! A part of HTTP/2 (RFC 9113) without a library: a test sees the frames of a library, and sends frames that no library
//! would.

use anyhow::{Context, ensure};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// The first message of a client.
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PING: u8 = 6;
pub const GOAWAY: u8 = 7;
pub const WINDOW_UPDATE: u8 = 8;
pub const CONTINUATION: u8 = 9;

pub const ACK: u8 = 1;
pub const END_HEADERS: u8 = 4;

pub const SETTINGS_MAX_CONCURRENT_STREAMS: u16 = 3;
pub const SETTINGS_INITIAL_WINDOW_SIZE: u16 = 4;

/// The initial window of a connection.
pub const DEFAULT_WINDOW: u32 = 65_535;

/// One frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    pub kind: u8,
    pub flags: u8,
    pub stream: u32,
    pub payload: Vec<u8>,
}

impl Frame {
    /// Returns a frame on a stream. Stream 0 is the connection.
    pub fn new(kind: u8, flags: u8, stream: u32, payload: impl Into<Vec<u8>>) -> Frame {
        Frame { kind, flags, stream, payload: payload.into() }
    }

    /// Writes the frame.
    pub async fn write(&self, to: &mut (impl AsyncWrite + Unpin)) -> std::io::Result<()> {
        let length = u32::try_from(self.payload.len()).map_err(std::io::Error::other)?;
        let mut bytes = length.to_be_bytes()[1..].to_vec();
        bytes.extend([self.kind, self.flags]);
        bytes.extend(self.stream.to_be_bytes());
        bytes.extend(&self.payload);
        to.write_all(&bytes).await
    }

    /// Reads the next frame. Returns `None` at the end.
    pub async fn read(from: &mut (impl AsyncRead + Unpin)) -> anyhow::Result<Option<Frame>> {
        let mut head = [0; 9];
        if from.read(&mut head[..1]).await? == 0 {
            return Ok(None);
        }
        from.read_exact(&mut head[1..]).await.context("the rest of a frame's head")?;
        let [a, b, c, kind, flags, stream @ ..] = head;
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]).try_into()?];
        from.read_exact(&mut payload).await.context("a frame's payload")?;
        let stream = u32::from_be_bytes(stream) & !(1 << 31);
        Ok(Some(Frame { kind, flags, stream, payload }))
    }
}

/// The settings that one side announces at the start of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Opening {
    pub stream_window: u32,
    pub connection_window: u32,
    pub max_concurrent_streams: Option<u32>,
}

/// Reads frames until the other side has been silent for a while. Returns its windows.
pub async fn opening(from: &mut (impl AsyncRead + Unpin)) -> anyhow::Result<Opening> {
    const SILENT: Duration = Duration::from_secs(1);
    let mut opening =
        Opening { stream_window: DEFAULT_WINDOW, connection_window: DEFAULT_WINDOW, max_concurrent_streams: None };
    while let Ok(frame) = tokio::time::timeout(SILENT, Frame::read(from)).await {
        let frame = frame?.context("the connection ended")?;
        match (frame.kind, frame.stream) {
            (SETTINGS, 0) if frame.flags & ACK == 0 => {
                ensure!(frame.payload.len() % 6 == 0, "settings are of six bytes each");
                for setting in frame.payload.chunks(6) {
                    let value = u32::from_be_bytes([setting[2], setting[3], setting[4], setting[5]]);
                    match u16::from_be_bytes([setting[0], setting[1]]) {
                        SETTINGS_MAX_CONCURRENT_STREAMS => opening.max_concurrent_streams = Some(value),
                        SETTINGS_INITIAL_WINDOW_SIZE => opening.stream_window = value,
                        _ => {}
                    }
                }
            }
            (WINDOW_UPDATE, 0) => {
                let by: [u8; 4] = frame.payload.as_slice().try_into().context("an increment is of four bytes")?;
                opening.connection_window += u32::from_be_bytes(by);
            }
            _ => {}
        }
    }
    Ok(opening)
}
