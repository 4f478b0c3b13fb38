//! The readers that need only bytes.

use bytes::Bytes;
use engine::work::{ToExecutor, ToLeader};
use executor_service::endpoint;
use graph_service::{Server, options};
use http::{Request, Response};
use http_body::Frame;
use http_body_util::StreamBody;
use kube_api::metadata::{Decoder, Encoding, Event, Item, event, page};
use kube_api::{BodyStream, Frames, Lines, Opened, open_stream};
use prost::Message as _;
use proto::convert::{Clock, EVENT_MAX_BYTES, LeaderLog, Received, received_from_executor, received_from_leader};
use proto::work::v1beta1::{StreamWorkRequest, StreamWorkResponse};
use recording::{Reader, Replay, Step};
use std::convert::Infallible;
use std::time::{Duration, SystemTime};
use tokio::runtime::Runtime;

/// The maximum length of a piece of a stream. It is small, so that inputs reach it.
const PIECE_MAX_BYTES: usize = 4_096;
/// The time limit of an answer. The answer is ready at once.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// The maximum length of foreign text in a reason.
const REASON_MAX_BYTES: usize = 4_000;

pub(super) fn metadata_json(bytes: &[u8]) {
    metadata(Encoding::Json, bytes);
}

pub(super) fn metadata_protobuf(bytes: &[u8]) {
    metadata(Encoding::Protobuf, bytes);
}

/// Reads the bytes as a page of a list and as an event of a watch.
fn metadata(encoding: Encoding, bytes: &[u8]) {
    let mut decoders = [None, Some(true), Some(false)].map(Decoder::new);
    let mut object = |item: &Item<'_>| {
        let _version = item.resource_version();
        for decoder in &mut decoders {
            match decoder.object(item) {
                Ok(object) => assert!(!object.name.is_empty() && !object.uid.to_string().is_empty(), "{object:?}"),
                Err(why) => ensure_said(&why),
            }
        }
    };
    match page(encoding, bytes) {
        Ok(page) => page.items.for_each(|item| object(&item)),
        Err(why) => ensure_said(&why),
    }
    match event(encoding, bytes) {
        Ok(Event::Added(item) | Event::Modified(item) | Event::Deleted(item)) => object(&item),
        Ok(Event::Bookmark { .. } | Event::Error(_)) => {}
        Err(why) => ensure_said(&why),
    }
}

fn ensure_said(why: &str) {
    assert!(!why.is_empty() && why.len() <= REASON_MAX_BYTES, "a reason of {} bytes: {why:.500}", why.len());
}

thread_local! {
    static RUNTIME: Runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime starts");
}

/// Reads the bytes as the answer to a watch, in chunks. The first byte determines their length.
async fn opened(bytes: &[u8]) -> BodyStream {
    let (&first, rest) = bytes.split_first().unwrap_or((&0, &[]));
    let rest = Bytes::copy_from_slice(rest);
    let size = usize::from(first) + 1;
    let chunk = |at: usize| Ok::<_, Infallible>(Frame::data(rest.slice(at..rest.len().min(at + size))));
    let body = StreamBody::new(futures::stream::iter((0..rest.len()).step_by(size).map(chunk).collect::<Vec<_>>()));
    let mut body = Some(body);
    let service = tower::service_fn(move |_: Request<kube::client::Body>| {
        std::future::ready(body.take().map(Response::new).ok_or("the answer was given"))
    });
    let client = kube::Client::new(service, "default");
    match open_stream(&client, Request::new(Vec::new()), ANSWER_WITHIN).await {
        Ok(Opened::Streaming { body, .. }) => body,
        other => panic!("{other:?}"),
    }
}

/// Reads each piece as an event too.
fn follow(bytes: &[u8], encoding: Encoding, pieces: impl AsyncFnOnce(BodyStream) -> Vec<Bytes>) {
    let pieces = RUNTIME.with(|runtime| runtime.block_on(async { pieces(opened(bytes).await).await }));
    let longest = pieces.iter().map(Bytes::len).max().unwrap_or_default();
    assert!(longest <= PIECE_MAX_BYTES, "a piece of {longest} bytes");
    assert!(pieces.iter().map(Bytes::len).sum::<usize>() <= bytes.len(), "more came out than went in");
    pieces.iter().for_each(|piece| metadata(encoding, piece));
}

pub(super) fn watch_frames(bytes: &[u8]) {
    follow(bytes, Encoding::Protobuf, async |body| {
        let (mut frames, mut pieces) = (Frames::new(body, PIECE_MAX_BYTES), Vec::new());
        while let Ok(Some(frame)) = frames.next().await {
            pieces.push(frame);
        }
        pieces
    });
}

pub(super) fn watch_lines(bytes: &[u8]) {
    follow(bytes, Encoding::Json, async |body| {
        let (mut lines, mut pieces) = (Lines::new(body, PIECE_MAX_BYTES), Vec::new());
        while let Ok(Some(line)) = lines.next().await {
            pieces.push(line);
        }
        pieces
    });
}

/// Reads the bytes as values of flags, and as hints of the leader's address.
pub(super) fn flags(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let _duration = options::duration(text);
    let _resource = options::group_resource(text);
    let _server: Result<Server, _> = text.parse();
    let _lease = engine::work::LeaseId::parse(text);
    let _version = engine::object::ResourceVersion::parse(text);
    let _endpoint = endpoint(text);
}

/// Reads the bytes as a message of an executor. A message that it understands must keep its meaning when it is encoded
/// again.
pub(super) fn from_executors(bytes: &[u8]) {
    let Ok(message) = StreamWorkRequest::decode(bytes) else { return };
    match received_from_executor(message) {
        Ok(Some(said)) => {
            let again: Result<Option<ToLeader>, _> = received_from_executor(said.clone().into());
            assert_eq!(again.ok().flatten().as_ref(), Some(&said), "it does not survive being said again");
        }
        Ok(None) => {}
        Err(malformed) => ensure_said(&malformed.to_string()),
    }
}

/// Reads the bytes as a message of a leader, with the same check.
pub(super) fn from_leaders(bytes: &[u8]) {
    let Ok(message) = StreamWorkResponse::decode(bytes) else { return };
    match received_from_leader(message) {
        Ok(Some(Received { message: said, .. })) => again(said),
        Ok(None) => {}
        Err(malformed) => ensure_said(&malformed.to_string()),
    }
}

fn again(said: ToExecutor) {
    let again = received_from_leader(said.clone().into()).ok().flatten();
    assert_eq!(again.map(|received| received.message), Some(said), "it does not survive being said again");
}

/// Reads a recording, and replays it.
pub(super) fn recordings(bytes: &[u8]) {
    replay(bytes.to_vec());
}

/// Reads the bytes as the entries of a recording, behind the checksum of their block, and replays them.
pub(super) fn recorded_entries(bytes: &[u8]) {
    replay(recording::fuzzing::file_of(bytes));
}

/// Replays a file, and writes its decision log and the last numbers of its comparison.
fn replay(file: Vec<u8>) {
    let Ok(reader) = Reader::of_bytes(file) else { return };
    let origin = SystemTime::UNIX_EPOCH + Duration::from_nanos(reader.header().origin);
    let (mut replay, mut log) = (Replay::new(reader), LeaderLog::default());
    while let Some(Step { at, events }) = replay.step() {
        let clock = Clock { now: at, calendar: origin + at.since_origin() };
        for record in events.iter().filter_map(|event| log.record(event, clock)) {
            assert!(record.encoded_len() <= EVENT_MAX_BYTES, "an event of {} bytes", record.encoded_len());
        }
    }
    assert!(replay.end().is_some(), "a replay has an end");
    let clock = Clock { now: replay.now(), calendar: origin + replay.now().since_origin() };
    let _numbers = replay.queries().parity(None).map(|view| proto::convert::parity(view, clock));
}
