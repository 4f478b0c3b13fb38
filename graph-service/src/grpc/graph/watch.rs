//! Streams objects: their appearance, changes and removal.
//!
//! A stream begins with all existing objects in messages of bounded size, reports the end of that snapshot, and
//! continues with changes. It reports states and not a history: several changes of one object may arrive as one. The
//! service keeps the state of an ended stream for a while, and another stream can resume from any of its messages. If
//! that state is gone, or a change was missed, the stream starts with a new snapshot.

use super::{Graph, WALK_MAX, lookup, named};
use crate::grpc::access::{Visibility, redact};
use crate::grpc::filter::Sieve;
use crate::grpc::followers::{Reader, STREAM_AGE, Stop};
use crate::grpc::freshness::About;
use crate::grpc::pages::Question;
use crate::grpc::{Shared, renewal_age, status};
use engine::leader::{Linked, Queries};
use engine::object::{Digest, Uid};
use engine::view::LISTED_MAX;
use kept::{Kept, OBJECTS_MAX, Removed, State, Token};
use members::{Members, Root};
use prost::Message as _;
use proto::graph::v1beta1::watch_dependents_response::{Batch, Bookmark, Change, ChangeType, Event, GoingAway, Reset};
use proto::graph::v1beta1::{Edge, Node, NodeState, WatchDependentsRequest, WatchDependentsResponse};
use proto::r#type::v1beta1::ObjectRef;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep, sleep_until};
use tonic::Status;

pub(in crate::grpc) mod kept;
mod members;
#[cfg(test)]
mod tests;

/// Objects to read under one lock of the graph.
const STEP: usize = 250;
/// Minimum time between two reads of changes.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Maximum number of objects of one message.
const CHANGES_MAX: usize = 500;
/// Maximum number of bytes of one message, approximately.
const BYTES_MAX: usize = 512 * 1024;
/// Interval of bookmarks on a quiet stream: default, minimum and maximum.
const BOOKMARK_DEFAULT: Duration = Duration::from_secs(10);
const BOOKMARK_MIN: Duration = Duration::from_secs(1);
const BOOKMARK_MAX: Duration = Duration::from_secs(60);

/// Why a stream starts with a new snapshot.
const UNKNOWN: &str = "this replica does not know the resume_token: another replica issued it, or it has expired";
const BEHIND: &str = "the stream missed more changes than the replica keeps";
const REWOUND: &str = "the store was restored";
const OTHER_SIGHT: &str = "the rights of the caller have changed";

/// The request of a reader.
#[derive(Debug)]
pub(super) struct Watch {
    shared: Arc<Shared>,
    kept: Arc<Kept>,
    root: Root,
    members_max: usize,
    sieve: Sieve,
    visibility: Visibility,
    bookmark_interval: Duration,
    /// The request without the fields that may differ between a stream and its successor.
    question: Question,
}

/// The progress of the stream.
struct Sent {
    reader: Reader<WatchDependentsResponse>,
    at: Instant,
    is_first: bool,
}

/// Why a stream starts again.
enum Anew {
    Because(&'static str),
    Stop(Stop),
}

impl From<Stop> for Anew {
    fn from(stop: Stop) -> Anew {
        Anew::Stop(stop)
    }
}

impl Watch {
    /// Reads a request, waits for its freshness, and finds the state to resume from.
    pub(super) async fn of(
        graph: &Graph,
        request: WatchDependentsRequest,
        visibility: Visibility,
    ) -> Result<(Watch, Option<Token>), Status> {
        match &request.r#ref {
            Some(object) => lookup::claim(&visibility, std::slice::from_ref(object)).await?,
            None => visibility.require_named(named(&request.include)).await?,
        }
        let question = WatchDependentsRequest {
            resume_token: Vec::new(),
            consistency: None,
            bookmark_interval: None,
            ..request.clone()
        };
        let max_depth = super::depth(request.max_depth)?;
        let sieve = Sieve::of(&request.include, &request.exclude)?;
        let bookmark_interval = match request.bookmark_interval {
            None => BOOKMARK_DEFAULT,
            Some(wanted) => status::duration("bookmark_interval", wanted)?.clamp(BOOKMARK_MIN, BOOKMARK_MAX),
        };
        let from = match request.resume_token.as_slice() {
            [] => None,
            token => Some(Token::read(token).ok_or_else(|| status::token_malformed("resume_token"))?),
        };
        graph.shared.freshness.wait(request.consistency, &About::Everything).await?;
        let (root, members_max) = match request.r#ref {
            None => (Root::Everything, OBJECTS_MAX),
            Some(object) => {
                let is_placed = lookup::is_placed(&object);
                let known = graph.resolve(Some(object), &visibility).await?;
                // The owner of a resumed watch may be gone.
                let may_be_gone = from.is_some() && (is_placed || visibility.sees_everything());
                let uid = if may_be_gone { known.uid().clone() } else { known.present(graph, &visibility)? };
                (Root::Below { uid, max_depth }, WALK_MAX)
            }
        };
        let question = Question::of(&question, &visibility);
        let (shared, kept) = (Arc::clone(&graph.shared), Arc::clone(&graph.watched));
        Ok((Watch { shared, kept, root, members_max, sieve, visibility, bookmark_interval, question }, from))
    }

    /// `from` is the last message that the client took from another stream.
    pub(super) async fn run(self, from: Option<Token>, reader: Reader<WatchDependentsResponse>) -> Result<(), Status> {
        let mut sent = Sent { reader, at: Instant::now(), is_first: true };
        let mut state = State::new(self.begin());
        let ended = self.follow(from, &mut state, &mut sent).await;
        self.kept.closed(&state);
        if state.is_whole {
            state.seen = self.visibility.seen();
            self.kept.keep(state, self.question.clone());
        }
        Stop::ended(ended)
    }

    fn begin(&self) -> Members {
        Members::new(self.root.clone(), self.members_max)
    }

    async fn follow(&self, from: Option<Token>, state: &mut State, sent: &mut Sent) -> Result<(), Stop> {
        let ends = Instant::now() + renewal_age(STREAM_AGE);
        let mut anew = match from {
            None => None,
            Some(token) => match self.kept.take(&token, &self.question).await {
                Some(before) => {
                    self.visibility.learn(before.seen.namespaces()).await.map_err(Stop::Failed)?;
                    if before.seen == self.visibility.seen() {
                        *state = before;
                        self.kept.opened(state, &self.question, sent.reader.dismissal());
                        state.sight_changes = self.visibility.changes();
                        self.send_again(token.sequence, state, sent).await?;
                        None
                    } else {
                        Some(OTHER_SIGHT)
                    }
                }
                None => Some(UNKNOWN),
            },
        };
        loop {
            if let Some(reason) = anew.take() {
                self.kept.closed(state);
                *state = State::new(self.begin());
                self.send(Event::Reset(Reset { reason: reason.to_owned() }), false, state, sent).await?;
            }
            let ended = match state.is_whole {
                true => self.changes(state, sent, ends).await,
                false => self.snapshot(state, sent).await,
            };
            match ended {
                Ok(false) => {}
                Ok(true) => return self.send_away(state, sent).await,
                Err(Anew::Because(reason)) => anew = Some(reason),
                Err(Anew::Stop(stop)) => return Err(stop),
            }
        }
    }

    /// Sends all current objects, and the end of the snapshot.
    async fn snapshot(&self, state: &mut State, sent: &mut Sent) -> Result<bool, Anew> {
        state.sight_changes = self.visibility.changes();
        (state.next_change, state.histories) =
            self.shared.reader.with(|queries| (queries.next_change(), queries.histories()));
        let mut next = (self.root == Root::Everything).then_some(0);
        loop {
            // The turn ends before the messages, because a reader may take its time.
            let turn = self.shared.long_read().await.map_err(Stop::Failed)?;
            if let Some(place) = next {
                let (uids, rest) = self.shared.reader.with(|queries| queries.uids_from(place, CHANGES_MAX));
                next = rest;
                state.members.note(uids);
            }
            self.settle(state).await?;
            drop(turn);
            // Before its end, a snapshot cannot be resumed.
            self.show(state, ChangeType::Present, true, sent).await?;
            if next.is_none() {
                break;
            }
        }
        state.is_whole = true;
        self.kept.opened(state, &self.question, sent.reader.dismissal());
        let redacted_count = state.members.hidden();
        let bookmark = Bookmark { snapshot_complete: true, redacted_count, expression_errors: self.sieve.errors() };
        self.send(Event::Bookmark(bookmark), true, state, sent).await?;
        Ok(false)
    }

    /// Sends changes until the stream reaches its age.
    async fn changes(&self, state: &mut State, sent: &mut Sent, ends: Instant) -> Result<bool, Anew> {
        let mut rounds = self.shared.reader.rounds();
        loop {
            rounds.mark_unchanged();
            if self.visibility.changes() != state.sight_changes {
                return Err(Anew::Because(OTHER_SIGHT));
            }
            let more = self.take_in(state).await?;
            self.settle(state).await?;
            self.show(state, ChangeType::Changed, more, sent).await?;
            if more {
                continue;
            }
            let now = Instant::now();
            if now >= ends || self.shared.shutdown.is_requested() {
                return Ok(true);
            }
            let bookmark_at = sent.at + self.bookmark_interval;
            if now >= bookmark_at {
                let bookmark = Bookmark {
                    snapshot_complete: false,
                    redacted_count: state.members.hidden(),
                    expression_errors: self.sieve.errors(),
                };
                self.send(Event::Bookmark(bookmark), true, state, sent).await?;
                continue;
            }
            tokio::select! {
                // The sender lives as long as the service.
                _ = rounds.changed() => sleep(LOOK_EVERY).await,
                () = sleep_until(bookmark_at.min(ends)) => {}
                () = self.shared.shutdown.requested() => {}
                () = sent.reader.gone() => return Err(Stop::Gone.into()),
            }
        }
    }

    /// Records the objects that may have changed. Returns true if there are more.
    async fn take_in(&self, state: &mut State) -> Result<bool, Anew> {
        tokio::task::yield_now().await;
        let (changed, histories) =
            self.shared.reader.with(|queries| (queries.changed(state.next_change, STEP), queries.histories()));
        if histories != state.histories {
            return Err(Anew::Because(REWOUND));
        }
        let Some(changed) = changed else { return Err(Anew::Because(BEHIND)) };
        let more = changed.len() == STEP;
        state.next_change += changed.len() as u64;
        state.members.note(changed);
        Ok(more)
    }

    async fn settle(&self, state: &mut State) -> Result<(), Anew> {
        while !self.shared.reader.with(|queries| state.members.step(queries, STEP)) {
            tokio::task::yield_now().await;
        }
        let all = self.kept.count(state);
        if state.members.overflown {
            return Err(Stop::Failed(status::traversal_limit(self.members_max)).into());
        }
        all.map_err(|max| Anew::Stop(Stop::Failed(status::limit_exceeded("watched objects", max))))
    }

    /// Sends objects whose shown state has changed. `more` means that the client cannot resume after this message.
    async fn show(&self, state: &mut State, kind: ChangeType, more: bool, sent: &mut Sent) -> Result<(), Anew> {
        let touched: Vec<Uid> = state.members.take_touched().into_iter().collect();
        let mut batch = Batch { changes: Vec::new(), more: true };
        let mut bytes = 0;
        for step in touched.chunks(STEP) {
            let seen: Vec<Seen> =
                self.shared.reader.with(|queries| step.iter().map(|uid| Seen::of(queries, uid)).collect());
            self.learn(&seen).await?;
            for (uid, seen) in step.iter().zip(seen) {
                let Some(change) = self.change(state, uid, seen, kind) else { continue };
                bytes += change.encoded_len();
                batch.changes.push(change);
                if batch.changes.len() == CHANGES_MAX || bytes > BYTES_MAX {
                    let full = std::mem::replace(&mut batch, Batch { changes: Vec::new(), more: true });
                    self.send(Event::Batch(full), false, state, sent).await?;
                    bytes = 0;
                }
            }
            tokio::task::yield_now().await;
        }
        batch.more = more;
        if !batch.changes.is_empty() || (!more && !state.is_told) {
            self.send(Event::Batch(batch), !more, state, sent).await?;
        }
        Ok(())
    }

    /// Checks the rights for new namespaces. A watch of everything shows only the namespaces that its filters name.
    async fn learn(&self, seen: &[Seen]) -> Result<(), Stop> {
        if self.root == Root::Everything || self.visibility.sees_everything() {
            return Ok(());
        }
        let nodes = seen.iter().filter_map(|seen| seen.linked.as_ref()).map(|linked| &linked.node);
        self.visibility.learn(super::namespaces(nodes)).await.map_err(Stop::Failed)
    }

    fn change(&self, state: &mut State, uid: &Uid, seen: Seen, kind: ChangeType) -> Option<Change> {
        let depth = state.members.depth(uid);
        let (sequence, members) = (state.sequence + 1, &mut state.members);
        let placed = depth.zip(seen.linked.as_ref());
        let hidden = |(_, linked): &(u32, &Linked)| !self.visibility.sees(&linked.node.object.namespace);
        let is_hidden = placed.as_ref().is_some_and(hidden);
        members.hide(uid, is_hidden && self.root != Root::Everything);
        let admitted = placed.filter(|(_, linked)| !is_hidden && self.sieve.admits(&linked.node));
        let Some((depth, linked)) = admitted else {
            let was_shown = members.get_mut(uid).and_then(|member| member.shown.take().map(|_| member.since));
            members.forget(uid);
            let removed =
                || Change { r#type: ChangeType::Removed.into(), node: Some(seen.node(uid)), ..Change::default() };
            let removed = was_shown.map(|since| (since, removed()));
            let (since, removed) = removed?;
            state.removed(Removed { sequence, since, uid: uid.clone(), change: removed.clone() });
            return Some(removed);
        };
        let inside = linked.edges.iter().filter(|edge| members.leads_inside(&edge.owner.uid)).cloned();
        let mut edges: Vec<Edge> = inside.take(LISTED_MAX).map(Edge::from).collect();
        redact::edges(&self.visibility, &mut edges);
        let mut change = Change { r#type: kind.into(), node: Some(linked.node.clone().into()), edges, depth };
        let digest = Digest::of(Change { r#type: 0, ..change.clone() }.encode_to_vec());
        let member = members.get_mut(uid)?;
        if member.shown == Some(digest) {
            return None;
        }
        if member.shown.replace(digest).is_none() {
            member.since = sequence;
            if kind == ChangeType::Changed {
                change.set_type(ChangeType::Added);
            }
        }
        member.at = sequence;
        Some(change)
    }

    /// Sends again the changes after the last message that the client took: existing objects in their current state,
    /// and removals.
    async fn send_again(&self, after: u64, state: &mut State, sent: &mut Sent) -> Result<(), Stop> {
        let again = state.members.iter().filter(|(_, member)| member.at > after && member.shown.is_some());
        let again: Vec<(Uid, bool)> = again.map(|(uid, member)| (uid.clone(), member.since > after)).collect();
        let mut removed = state.removed_after(after);
        let mut changes = Vec::new();
        for step in again.chunks(STEP) {
            let seen: Vec<Seen> =
                self.shared.reader.with(|queries| step.iter().map(|(uid, _)| Seen::of(queries, uid)).collect());
            self.learn(&seen).await?;
            for ((uid, is_new), seen) in step.iter().zip(seen) {
                // An object that left and returned counts as an object that stayed.
                let is_new = *is_new && removed.remove(uid).is_none();
                // Marks the object as never shown, so that it is sent in any case.
                if let Some(member) = state.members.get_mut(uid) {
                    member.shown = Some(0);
                }
                let Some(mut change) = self.change(state, uid, seen, ChangeType::Changed) else { continue };
                match (is_new, change.r#type()) {
                    (true, ChangeType::Changed) => change.set_type(ChangeType::Added),
                    // The client never saw the object.
                    (true, ChangeType::Removed) => continue,
                    (
                        _,
                        ChangeType::Unspecified
                        | ChangeType::Present
                        | ChangeType::Added
                        | ChangeType::Changed
                        | ChangeType::Removed,
                    ) => {}
                }
                changes.push(change);
            }
            tokio::task::yield_now().await;
        }
        changes.extend(removed.into_values());
        loop {
            let rest = changes.split_off(fitting(&changes));
            if rest.is_empty() {
                break;
            }
            self.send(Event::Batch(Batch { changes, more: true }), false, state, sent).await?;
            changes = rest;
        }
        self.send(Event::Batch(Batch { changes, more: false }), true, state, sent).await
    }

    async fn send_away(&self, state: &mut State, sent: &mut Sent) -> Result<(), Stop> {
        let (reason, reconnect_after) = self.shared.going_away();
        self.send(Event::GoingAway(GoingAway { reason, reconnect_after }), true, state, sent).await
    }

    /// `resumable`: the client may resume after this message.
    async fn send(&self, event: Event, resumable: bool, state: &mut State, sent: &mut Sent) -> Result<(), Stop> {
        let marks = matches!(event, Event::Bookmark(_));
        let meta = (std::mem::take(&mut sent.is_first) || marks).then(|| self.shared.meta());
        state.sequence += 1;
        let resume_token = if resumable { state.token().write() } else { Vec::new() };
        let message = WatchDependentsResponse { event: Some(event), resume_token, meta };
        sent.reader.send(message).await.map_err(|why| Stop::untaken(why, status::slow_watcher))?;
        state.is_told = resumable;
        sent.at = Instant::now();
        Ok(())
    }
}

/// The number of changes that fit into a message.
fn fitting(changes: &[Change]) -> usize {
    let mut bytes = 0;
    let fits = |change: &&Change| {
        bytes += change.encoded_len();
        bytes <= BYTES_MAX
    };
    let count = changes.iter().take(CHANGES_MAX).take_while(fits).count();
    // An oversized change is a message of its own.
    count.max(usize::from(!changes.is_empty()))
}

/// One object as the graph has it now.
struct Seen {
    linked: Option<Linked>,
    departed: Option<Node>,
}

impl Seen {
    fn of(queries: &Queries<'_>, uid: &Uid) -> Seen {
        let linked = queries.linked(uid);
        let departed = if linked.is_none() { queries.tombstone(uid).map(Node::from) } else { None };
        Seen { linked, departed }
    }

    /// The object, or its best-known state.
    fn node(&self, uid: &Uid) -> Node {
        let unknown = || {
            let object = ObjectRef { uid: uid.to_string(), ..ObjectRef::default() };
            Node { r#ref: Some(object), state: NodeState::Gone.into(), ..Node::default() }
        };
        let here = self.linked.as_ref().map(|linked| linked.node.clone().into());
        here.or_else(|| self.departed.clone()).unwrap_or_else(unknown)
    }
}
