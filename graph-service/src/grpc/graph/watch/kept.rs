//! States of ended streams, kept for a while so that new streams can resume from them. A client may reconnect before
//! the service notices the lost connection. The new stream then ends the old one and resumes from it.

use super::members::Members;
use crate::grpc::access::Seen;
use crate::grpc::pages::Question;
use engine::object::Uid;
use prost::Message as _;
use proto::graph::v1beta1::watch_dependents_response::Change;
use std::collections::{BTreeMap, VecDeque};
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

/// How long the state of an ended stream is kept.
const AGE_MAX: Duration = Duration::from_secs(300);
/// Maximum time that a superseded stream takes to end.
const ENDS_WITHIN: Duration = Duration::from_secs(2);
/// Maximum number of kept states.
const STATES_MAX: usize = 64;
/// Maximum number of objects in all kept states.
const KEPT_OBJECTS_MAX: usize = 400_000;
/// Maximum number of objects in all open streams. Each takes about 200 bytes.
pub(super) const OBJECTS_MAX: usize = 2_000_000;
/// Approximate maximum size of the removals of one stream.
const REMOVED_BYTES_MAX: usize = 4 * 1024 * 1024;
/// First byte of a token.
const FORMAT: u8 = 1;
const TOKEN_BYTES: usize = 1 + 16 + 8;

/// A position in a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::grpc) struct Token {
    /// Random, so that a client cannot name the stream of another client.
    stream: u128,
    pub(super) sequence: u64,
}

impl Token {
    pub(in crate::grpc) fn write(self) -> Vec<u8> {
        let mut bytes = vec![FORMAT];
        bytes.extend(self.stream.to_be_bytes());
        bytes.extend(self.sequence.to_be_bytes());
        bytes
    }

    /// `None` if no version of this service wrote the bytes.
    pub(in crate::grpc) fn read(bytes: &[u8]) -> Option<Token> {
        let bytes: &[u8; TOKEN_BYTES] = bytes.try_into().ok()?;
        let (stream, sequence) = (bytes[1..17].try_into().ok()?, bytes[17..].try_into().ok()?);
        let token = Token { stream: u128::from_be_bytes(stream), sequence: u64::from_be_bytes(sequence) };
        (bytes[0] == FORMAT).then_some(token)
    }
}

/// The objects that a stream has shown, and the change at which it continues.
#[derive(Debug)]
pub(super) struct State {
    stream: u128,
    /// The number of the last message.
    pub(super) sequence: u64,
    pub(super) members: Members,
    /// The number of the next change of the graph.
    pub(super) next_change: u64,
    /// The history of the store that this number belongs to.
    pub(super) histories: u64,
    /// The snapshot is complete.
    pub(super) is_whole: bool,
    /// The last message had a resume token.
    pub(super) is_told: bool,
    /// The reader's rights when the stream ended.
    pub(super) seen: Seen,
    /// The number of changed rights when the snapshot began.
    pub(super) sight_changes: u64,
    /// Removals, in order.
    removed: VecDeque<Removed>,
    removed_bytes: usize,
    /// Some removals up to this message are forgotten.
    removed_forgotten: u64,
    room: Option<Room>,
}

impl State {
    pub(super) fn new(members: Members) -> State {
        let random = || u128::from(getrandom::u64().unwrap_or_default());
        State {
            stream: random() << 64 | random(),
            sequence: 0,
            members,
            next_change: 0,
            histories: 0,
            is_whole: false,
            is_told: true,
            seen: Seen::default(),
            sight_changes: 0,
            removed: VecDeque::new(),
            removed_bytes: 0,
            removed_forgotten: 0,
            room: None,
        }
    }

    /// The token to resume from here.
    pub(super) fn token(&self) -> Token {
        Token { stream: self.stream, sequence: self.sequence }
    }

    pub(super) fn removed(&mut self, removed: Removed) {
        self.removed_bytes += removed.change.encoded_len();
        self.removed.push_back(removed);
        while self.removed_bytes > REMOVED_BYTES_MAX
            && let Some(oldest) = self.removed.pop_front()
        {
            self.removed_bytes -= oldest.change.encoded_len();
            self.removed_forgotten = oldest.sequence;
        }
    }

    /// Removals after a message, of objects that the message or an earlier one showed.
    pub(super) fn removed_after(&self, sequence: u64) -> BTreeMap<Uid, Change> {
        let left = |removed: &&Removed| removed.sequence > sequence && removed.since <= sequence;
        self.removed.iter().filter(left).map(|removed| (removed.uid.clone(), removed.change.clone())).collect()
    }
}

/// A removed object.
#[derive(Debug)]
pub(super) struct Removed {
    /// The message that reported the removal.
    pub(super) sequence: u64,
    /// The message that first showed the object.
    pub(super) since: u64,
    pub(super) uid: Uid,
    pub(super) change: Change,
}

/// The objects of one stream in the count of all watched objects.
#[derive(Debug)]
struct Room {
    all: Arc<AtomicUsize>,
    mine: usize,
}

impl Drop for Room {
    fn drop(&mut self) {
        self.all.fetch_sub(self.mine, Ordering::Relaxed);
    }
}

/// See the module documentation.
#[derive(Debug, Default)]
pub(in crate::grpc::graph) struct Kept {
    states: Mutex<VecDeque<(Instant, Question, State)>>,
    /// Open streams by number, with their requests and the tokens that end them. As many as streams are allowed.
    open: Mutex<BTreeMap<u128, (Question, CancellationToken)>>,
    /// A state was added.
    added: Notify,
    objects: Arc<AtomicUsize>,
}

impl Kept {
    /// Counts the objects of a stream with those of all others. The error is the bound.
    pub(super) fn count(&self, state: &mut State) -> Result<(), usize> {
        let room = state.room.get_or_insert_with(|| Room { all: Arc::clone(&self.objects), mine: 0 });
        let now = state.members.len();
        self.objects.fetch_add(now, Ordering::Relaxed);
        let all = self.objects.fetch_sub(room.mine, Ordering::Relaxed) - room.mine;
        room.mine = now;
        if all > OBJECTS_MAX { Err(OBJECTS_MAX) } else { Ok(()) }
    }

    /// Records a stream that another one may supersede.
    pub(super) fn opened(&self, state: &State, question: &Question, dismissal: CancellationToken) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.insert(state.stream, (question.clone(), dismissal));
    }

    /// Forgets a stream that has ended or shows something else.
    pub(super) fn closed(&self, state: &State) {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).remove(&state.stream);
    }

    /// Keeps the state of a stream with its request.
    pub(super) fn keep(&self, state: State, question: Question) {
        self.put(state, question);
        self.added.notify_waiters();
    }

    fn put(&self, state: State, question: Question) {
        let mut states = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        states.push_back((Instant::now(), question, state));
        states.retain(|(at, ..)| at.elapsed() < AGE_MAX);
        let objects = |states: &VecDeque<(Instant, Question, State)>| {
            states.iter().map(|(.., state)| state.members.len()).sum::<usize>()
        };
        while states.len() > STATES_MAX || (states.len() > 1 && objects(&states) > KEPT_OBJECTS_MAX) {
            states.pop_front();
        }
    }

    /// The state of the stream that a token names, if all messages since then can be repeated. Only one stream gets it.
    /// An open stream with this number ends now.
    pub(super) async fn take(&self, token: &Token, question: &Question) -> Option<State> {
        let mut added = pin!(self.added.notified());
        added.as_mut().enable();
        if let Some(state) = self.find(token, question) {
            return Some(state);
        }
        self.dismissal(token, question)?.cancel();
        let until = Instant::now() + ENDS_WITHIN;
        while timeout_at(until, added.as_mut()).await.is_ok() {
            added.set(self.added.notified());
            added.as_mut().enable();
            if let Some(state) = self.find(token, question) {
                return Some(state);
            }
        }
        None
    }

    fn dismissal(&self, token: &Token, question: &Question) -> Option<CancellationToken> {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.get(&token.stream).filter(|(asked, _)| asked == question).map(|(_, dismissal)| dismissal.clone())
    }

    fn find(&self, token: &Token, question: &Question) -> Option<State> {
        let mut states = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        states.retain(|(at, ..)| at.elapsed() < AGE_MAX);
        let fits = |(_, asked, state): &(Instant, Question, State)| {
            state.stream == token.stream
                && asked == question
                && token.sequence <= state.sequence
                && token.sequence >= state.removed_forgotten
        };
        let at = states.iter().position(fits)?;
        states.remove(at).map(|(.., state)| state)
    }
}
