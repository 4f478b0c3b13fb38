//! Streams of messages that are encoded by those who write them, and go to the connection as they are.
//!
//! The library encodes each message for each of its readers anew, on the task of the connection. Here a message is made of parts: one that
//! is this reader's, and one that it shares with others. Nobody copies them on their way to the socket.

use futures::StreamExt as _;
use futures::stream::BoxStream;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Response};
use http_body::{Body, Frame};
use prost::Message;
use prost::bytes::{BufMut as _, Bytes, BytesMut};
use prost::encoding::{self, WireType};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tonic::Status;
use tonic::codec::{Codec as _, Streaming};
use tonic::metadata::MetadataMap;
use tonic_prost::ProstCodec;

/// What stands before a message: whether it is compressed, and its length.
const PREFIX_BYTES: usize = 5;

/// A message of a stream, with its prefix.
#[derive(Clone, Debug)]
pub(super) struct Encoded {
    own: Bytes,
    /// The rest; empty where there is none.
    shared: Bytes,
}

impl Encoded {
    pub(super) fn of(message: &impl Message) -> Encoded {
        let mut own = BytesMut::with_capacity(PREFIX_BYTES + message.encoded_len());
        put_prefix(message.encoded_len(), &mut own);
        message.encode_raw(&mut own);
        Encoded { own: own.freeze(), shared: Bytes::new() }
    }

    /// A message that has a message in this field, which is encoded already. The order of fields does not matter.
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

    /// The message as its reader will have it.
    pub(super) fn decode<M: Message + Default>(&self) -> Result<M, Status> {
        let bytes = [self.own.get(PREFIX_BYTES..).unwrap_or_default(), &self.shared].concat();
        M::decode(bytes.as_slice()).map_err(|error| Status::internal(error.to_string()))
    }
}

/// How many bytes of a connection something takes.
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

/// The one message of a request.
pub(super) async fn read<M: Message + Default + Send + 'static>(
    request: http::Request<tonic::body::Body>,
    bytes_max: usize,
) -> Result<tonic::Request<M>, Status> {
    let (parts, body) = request.into_parts();
    let decoder = ProstCodec::<M, M>::default().decoder();
    let mut messages = Streaming::new_request(decoder, body, None, Some(bytes_max));
    let message = messages.message().await?.ok_or_else(|| Status::internal("the request has no message"))?;
    Ok(tonic::Request::from_parts(MetadataMap::from_headers(parts.headers), parts.extensions, message))
}

/// The answer that a stream is, or how the call failed.
pub(super) fn answer(
    messages: Result<BoxStream<'static, Result<Encoded, Status>>, Status>,
) -> Response<tonic::body::Body> {
    match messages {
        Ok(messages) => {
            let body = Messages { messages: Some(messages), next: None };
            let mut response = Response::new(tonic::body::Body::new(body));
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
            response
        }
        Err(status) => status.into_http(),
    }
}

/// The body of such an answer.
struct Messages {
    /// `None` after the end.
    messages: Option<BoxStream<'static, Result<Encoded, Status>>>,
    /// The rest of the message that is going out.
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
