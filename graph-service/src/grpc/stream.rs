//! Streams of messages that their writers encode.
//!
//! The library would encode each message for each reader, on the task of the connection. Here a message has two parts:
//! one for this reader, and one that readers share without a copy.

use flate2::Compression;
use flate2::write::GzEncoder;
use futures::StreamExt as _;
use futures::stream::BoxStream;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Response};
use http_body::{Body, Frame};
use prost::Message;
use prost::bytes::{BufMut as _, Bytes, BytesMut};
use prost::encoding::{self, WireType};
use std::io::Write as _;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tonic::Status;
use tonic::codec::{Codec as _, CompressionEncoding, Streaming};
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic_prost::ProstCodec;

/// The prefix of a message: the compression flag and the length.
const PREFIX_BYTES: usize = 5;

/// Minimum length of a message that is compressed.
const COMPRESSED_FROM: usize = 1024;
const GZIP: &str = "gzip";
/// Header with the compression of a body.
const ENCODING: &str = "grpc-encoding";
/// Header with the compressions that the peer accepts.
const ACCEPTED: &str = "grpc-accept-encoding";

/// A message of a stream, with its prefix.
#[derive(Clone, Debug)]
pub(super) struct Encoded {
    own: Bytes,
    /// The shared rest; empty if there is none.
    shared: Bytes,
}

impl Encoded {
    pub(super) fn of(message: &impl Message) -> Encoded {
        let mut own = BytesMut::with_capacity(PREFIX_BYTES + message.encoded_len());
        put_prefix(message.encoded_len(), &mut own);
        message.encode_raw(&mut own);
        Encoded { own: own.freeze(), shared: Bytes::new() }
    }

    /// A message with this encoded field added. The order of fields does not matter.
    pub(super) fn with_field(message: &impl Message, number: u32, field: Bytes) -> Encoded {
        let length = field.len() as u64;
        let head = encoding::key_len(number) + encoding::encoded_len_varint(length);
        let mut own = BytesMut::with_capacity(PREFIX_BYTES + message.encoded_len() + head);
        put_prefix(message.encoded_len() + head + field.len(), &mut own);
        message.encode_raw(&mut own);
        encoding::encode_key(number, WireType::LengthDelimited, &mut own);
        encoding::encode_varint(length, &mut own);
        Encoded { own: own.freeze(), shared: field }
    }

    /// Compresses the message if it is long enough. Each message has its own flag.
    pub(super) fn compressed(self) -> Encoded {
        if self.weight() < COMPRESSED_FROM {
            return self;
        }
        let mut bytes = vec![1, 0, 0, 0, 0];
        let mut gzip = GzEncoder::new(&mut bytes, Compression::fast());
        let message = self.own.get(PREFIX_BYTES..).unwrap_or_default();
        let written = [message, &self.shared].into_iter().try_for_each(|part| gzip.write_all(part));
        let Ok(_) = written.and_then(|()| gzip.finish()) else { return self };
        let length = u32::try_from(bytes.len() - PREFIX_BYTES).expect("messages are below 4 GiB");
        bytes[1..PREFIX_BYTES].copy_from_slice(&length.to_be_bytes());
        Encoded { own: bytes.into(), shared: Bytes::new() }
    }

    /// Decodes the message, unless it is compressed.
    pub(super) fn decode<M: Message + Default>(&self) -> Result<M, Status> {
        let bytes = [self.own.get(PREFIX_BYTES..).unwrap_or_default(), &self.shared].concat();
        M::decode(bytes.as_slice()).map_err(|error| Status::internal(error.to_string()))
    }
}

#[cfg(test)]
impl Encoded {
    /// The two parts of the message to send.
    pub(super) fn parts(self) -> [Bytes; 2] {
        [self.own, self.shared]
    }
}

/// The bytes that a message takes on a connection.
pub(super) trait Weighed {
    fn weight(&self) -> usize;
}

impl Weighed for Encoded {
    fn weight(&self) -> usize {
        self.own.len() + self.shared.len()
    }
}

impl<M: Message> Weighed for M {
    fn weight(&self) -> usize {
        self.encoded_len()
    }
}

fn put_prefix(length: usize, bytes: &mut BytesMut) {
    bytes.put_u8(0);
    bytes.put_u32(u32::try_from(length).expect("messages are below 4 GiB"));
}

/// Whether the peer accepts gzip.
pub(super) fn takes_gzip(headers: &HeaderMap) -> bool {
    let accepted = headers.get(ACCEPTED).and_then(|accepted| accepted.to_str().ok()).unwrap_or_default();
    accepted.split(',').any(|one| one.trim() == GZIP)
}

/// Reads the one message of a request.
pub(super) async fn read<M: Message + Default + Send + 'static>(
    request: http::Request<tonic::body::Body>,
    bytes_max: usize,
) -> Result<tonic::Request<M>, Status> {
    let (parts, body) = request.into_parts();
    let encoding = match parts.headers.get(ENCODING).map(HeaderValue::as_bytes) {
        None | Some(b"identity") => None,
        Some(b"gzip") => Some(CompressionEncoding::Gzip),
        Some(other) => {
            let how = format!("the compression {:?} is not supported", String::from_utf8_lossy(other));
            let mut refused = Status::unimplemented(how);
            refused.metadata_mut().insert(ACCEPTED, MetadataValue::from_static("gzip,identity"));
            return Err(refused);
        }
    };
    let decoder = ProstCodec::<M, M>::default().decoder();
    let mut messages = Streaming::new_request(decoder, body, encoding, Some(bytes_max));
    let message = messages.message().await?.ok_or_else(|| Status::internal("the request has no message"))?;
    Ok(tonic::Request::from_parts(MetadataMap::from_headers(parts.headers), parts.extensions, message))
}

/// The answer of a stream, or the error of the call. `gzip` means that messages may be compressed.
pub(super) fn answer(
    messages: Result<BoxStream<'static, Result<Encoded, Status>>, Status>,
    gzip: bool,
) -> Response<tonic::body::Body> {
    match messages {
        Ok(messages) => {
            let body = Messages { messages: Some(messages), next: None };
            let mut response = Response::new(tonic::body::Body::new(body));
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
            if gzip {
                response.headers_mut().insert(ENCODING, HeaderValue::from_static(GZIP));
            }
            response
        }
        Err(status) => status.into_http(),
    }
}

/// The body of such an answer.
struct Messages {
    /// `None` after the end.
    messages: Option<BoxStream<'static, Result<Encoded, Status>>>,
    /// The rest of the current message.
    next: Option<Bytes>,
}

impl Body for Messages {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if let Some(next) = self.next.take() {
            return Poll::Ready(Some(Ok(Frame::data(next))));
        }
        let Some(messages) = &mut self.messages else { return Poll::Ready(None) };
        let status = match ready!(messages.poll_next_unpin(context)) {
            Some(Ok(Encoded { own, shared })) => {
                self.next = Some(shared).filter(|shared| !shared.is_empty());
                return Poll::Ready(Some(Ok(Frame::data(own))));
            }
            Some(Err(status)) => status,
            None => Status::ok(""),
        };
        self.messages = None;
        let mut trailers = HeaderMap::new();
        Poll::Ready(Some(status.add_header(&mut trailers).map(|()| Frame::trailers(trailers))))
    }

    fn is_end_stream(&self) -> bool {
        self.messages.is_none() && self.next.is_none()
    }
}
