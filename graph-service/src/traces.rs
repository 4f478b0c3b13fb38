//! Traces of the leader: one cascade, from the first watch event to the last deleted object.
//!
//! One trace is one cascade. Its id follows from the uid of the root, so it is the same on each replica and under each
//! term. The sampling decision follows from the id, so unsampled cascades need no state, and sampled ones are complete.
//! Spans are created from events of the engine:
//!
//! * `cascade`: from the deletion or deletion mark of the root to the last object of the cascade;
//! * `collect`, for each object: from its first decision until it is gone or needs no further decision. Its parent is
//!   the span of the owner, if that is followed too;
//! * `decide`: the round of inputs with the verdict; `queue`: from the verdict to the grant; `lease`: from the grant to
//!   the report or return, with the executor's spans as children; `confirm`: from the report of a deletion to its
//!   DELETED.
//!
//! A large cascade is sampled: its first hundred objects, and one in a hundred of the others. All open state is bounded
//! and has a time limit.

use engine::leader::{AttemptEnd, Cause, Event, Grounds, Input};
use engine::object::{ObjectRef, Uid};
use engine::work::{ActionKind, Outcome, ToExecutor};
use moments::{Moments, Why};
use proto::convert::decision_id;
use runtime::traces::{Context, Kind, Open, Recorder, Span, SpanId, TraceId, Value, trace_of};
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;
use tokio::time::Instant;

mod moments;
#[cfg(test)]
mod tests;

/// Maximum number of cascades at once. Further ones are not recorded.
const CASCADES_MAX: usize = 256;
/// Maximum number of objects at once, in all cascades. Further ones are not recorded.
const OBJECTS_MAX: usize = 4096;
/// Each of the first objects of a cascade is followed.
const WHOLE_MAX: usize = 100;
/// After these first objects, one object in this many is followed.
const THINNED_TO: u64 = 100;
/// Time after which a cascade without open objects ends. Its next decision would come within milliseconds.
const OVER_AFTER: Duration = Duration::from_secs(2);
/// Time without events after which an object is no longer followed.
const GIVEN_UP_AFTER: Duration = Duration::from_secs(600);
/// Interval of the checks for cascades and objects that are over.
const LOOK_EVERY: Duration = Duration::from_secs(60);

/// Outcome of a lease that returned unstarted, or whose executor was lost.
const UNREPORTED: &str = "unreported";
/// Outcome of an object after its DELETED.
const GONE: &str = "gone";

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Traces {
    recorder: Recorder,
    _open: Open,
    moments: Moments,
    cascades: HashMap<TraceId, Cascade>,
    objects: HashMap<Uid, Followed>,
    /// Cascades without open objects, each with the time since which it has none, in the order of these times.
    resting: VecDeque<(Instant, TraceId)>,
    /// The start of this round.
    round: Instant,
    look_at: Instant,
    thinning: RandomState,
}

#[derive(Debug)]
struct Cascade {
    context: Context,
    root: ObjectRef,
    start: Instant,
    why: Why,
    /// Number of objects that the cascade has had.
    objects: usize,
    open: usize,
    /// The end of its last object.
    last: Instant,
    /// The time since which no object is open.
    rests: Instant,
    /// Spans of the first objects, as parents of their dependents.
    spans: HashMap<Uid, SpanId>,
}

#[derive(Debug)]
struct Followed {
    context: Context,
    parent: SpanId,
    target: ObjectRef,
    start: Instant,
    /// The time since which it waits for a grant.
    ready: Instant,
    lease: Option<Lease>,
    /// The time at which its deletion was accepted.
    written: Option<Instant>,
    /// Its DELETED came before the report of its deletion.
    gone: bool,
    heard: Instant,
    attempts: u32,
}

#[derive(Debug)]
struct Lease {
    span: SpanId,
    start: Instant,
    action: ActionKind,
    executor: String,
    attempt: u32,
}

type Attributes = Vec<(&'static str, Value)>;

impl Traces {
    pub(crate) fn new(recorder: Recorder, open: Open) -> Traces {
        let now = Instant::now();
        Traces {
            recorder,
            _open: open,
            moments: Moments::default(),
            cascades: HashMap::new(),
            objects: HashMap::new(),
            resting: VecDeque::new(),
            round: now,
            look_at: now + LOOK_EVERY,
            thinning: RandomState::new(),
        }
    }

    /// Starts a round of inputs. Ends cascades and objects that are over.
    pub(crate) fn round(&mut self) {
        self.round = Instant::now();
        while let Some((since, trace)) = self.resting.pop_front_if(|(since, _)| *since + OVER_AFTER <= self.round) {
            let is_over = |cascade: &Cascade| cascade.open == 0 && cascade.rests == since;
            if self.cascades.get(&trace).is_some_and(is_over)
                && let Some(cascade) = self.cascades.remove(&trace)
            {
                self.recorder.record(cascade.span());
            }
        }
        if self.look_at <= self.round {
            self.look_at = self.round + LOOK_EVERY;
            let given_up = |(uid, followed): (&Uid, &Followed)| {
                (followed.heard + GIVEN_UP_AFTER <= self.round).then(|| (uid.clone(), followed.heard))
            };
            for (uid, heard) in self.objects.iter().filter_map(given_up).collect::<Vec<_>>() {
                // The span ends at the last event.
                self.end_at(&uid, heard, "given_up");
            }
        }
    }

    /// Records an input before the engine handles it.
    pub(crate) fn fact(&mut self, input: &Input) {
        if let Input::Seen { object, .. } = input
            && object.facts.terminating
        {
            self.moments.note(&object.uid, self.round, Why::Terminating);
        }
    }

    /// Records an event of the engine. Call in order.
    pub(crate) fn event(&mut self, event: &Event) {
        // A decision without grounds is one of a replica that does not lead.
        if let Event::Decided { generation, target, action, causes, grounds: Some(grounds), .. } = event {
            self.decided(target, *action, *generation, causes, grounds);
        } else if let Event::Granted { target, action, executor, attempt, .. } = event {
            self.granted(target, *action, executor, *attempt);
        } else if let Event::Attempted { end, .. } = event {
            self.attempted(end);
        } else if let Event::Withdrawn { target, replaced: false, .. } = event {
            self.end(&target.uid, "withdrawn");
        } else if let Event::Removed { object, caused_by_us, .. } = event {
            self.moments.note(&object.uid, Instant::now(), Why::Gone);
            self.removed(object, *caused_by_us);
        } else if let Event::Proven { owner, .. } = event {
            self.moments.note(&owner.uid, Instant::now(), Why::Absent);
        } else if let Event::TermLost = event {
            self.finish("term_lost");
        }
    }

    /// Adds the span context to grants.
    pub(crate) fn label(&self, message: &mut ToExecutor) {
        let ToExecutor::Grant { leases } = message else { return };
        if self.objects.is_empty() {
            return;
        }
        for lease in leases {
            let followed = self.objects.get(&lease.item.target.uid);
            lease.traceparent = followed.and_then(|followed| {
                let span = followed.lease.as_ref()?.span;
                Some(Context { trace: followed.context.trace, span }.traceparent())
            });
        }
    }

    /// Ends everything that is open, with this outcome.
    pub(crate) fn finish(&mut self, why: &'static str) {
        for uid in self.objects.keys().cloned().collect::<Vec<_>>() {
            self.end(&uid, why);
        }
        for (_, cascade) in self.cascades.drain() {
            self.recorder.record(cascade.span());
        }
        self.resting.clear();
    }

    fn decided(
        &mut self,
        target: &ObjectRef,
        action: ActionKind,
        generation: u64,
        causes: &[Cause],
        grounds: &Grounds,
    ) {
        let now = Instant::now();
        if !self.objects.contains_key(&target.uid) && !self.follow(target, &grounds.chain) {
            return;
        }
        let Some(followed) = self.objects.get_mut(&target.uid) else { return };
        (followed.ready, followed.heard) = (now, now);
        let attributes = vec![
            ("ownergraph.action", action.as_str().into()),
            ("ownergraph.decision", decision_id(grounds.decision).into()),
            ("ownergraph.generation", generation.into()),
            ("ownergraph.cause", causes.first().map_or("none", Cause::as_str).into()),
        ];
        let span = followed.child(self.recorder.span_id(), "decide", (self.round, now), attributes);
        self.recorder.record(span);
    }

    /// Whether this object is followed from now on.
    fn follow(&mut self, target: &ObjectRef, chain: &[ObjectRef]) -> bool {
        let root = chain.last().unwrap_or(target);
        let trace = trace_of(&root.uid);
        if !self.recorder.covers(&trace) || self.objects.len() >= OBJECTS_MAX {
            return false;
        }
        if !self.cascades.contains_key(&trace) {
            if self.cascades.len() >= CASCADES_MAX {
                return false;
            }
            let (start, why) = self.moments.of(&root.uid, self.round).unwrap_or((self.round, Why::Seen));
            let context = Context { trace, span: self.recorder.span_id() };
            let cascade = Cascade {
                context,
                root: root.clone(),
                start,
                why,
                objects: 0,
                open: 0,
                last: self.round,
                rests: self.round,
                spans: HashMap::new(),
            };
            self.cascades.insert(trace, cascade);
        }
        let Some(cascade) = self.cascades.get_mut(&trace) else { return false };
        cascade.objects += 1;
        let is_one_of_many = || self.thinning.hash_one(&target.uid).is_multiple_of(THINNED_TO);
        if cascade.objects > WHOLE_MAX && !is_one_of_many() {
            return false;
        }
        let span = self.recorder.span_id();
        let above = chain.first().and_then(|owner| cascade.spans.get(&owner.uid));
        let parent = above.copied().unwrap_or(cascade.context.span);
        if cascade.spans.len() < WHOLE_MAX {
            cascade.spans.insert(target.uid.clone(), span);
        }
        cascade.open += 1;
        let followed = Followed {
            context: Context { trace, span },
            parent,
            target: target.clone(),
            start: self.round,
            ready: self.round,
            lease: None,
            written: None,
            gone: false,
            heard: self.round,
            attempts: 0,
        };
        self.objects.insert(target.uid.clone(), followed);
        true
    }

    fn granted(&mut self, target: &ObjectRef, action: ActionKind, executor: &str, attempt: u32) {
        let Some(followed) = self.objects.get_mut(&target.uid) else { return };
        let now = Instant::now();
        // The earlier lease returned unstarted, or its executor is gone.
        if let Some(lease) = followed.lease.take() {
            self.recorder.record(followed.leased(lease, now, UNREPORTED, Vec::new()));
        }
        let attributes = vec![("ownergraph.action", action.as_str().into())];
        self.recorder.record(followed.child(self.recorder.span_id(), "queue", (followed.ready, now), attributes));
        let span = self.recorder.span_id();
        followed.lease = Some(Lease { span, start: now, action, executor: executor.to_owned(), attempt });
        followed.heard = now;
    }

    fn attempted(&mut self, end: &AttemptEnd) {
        let (target, outcome, http_status) = (&end.target, end.outcome, end.http_status);
        let Some(followed) = self.objects.get_mut(&target.uid) else { return };
        let now = Instant::now();
        if let Some(lease) = followed.lease.take() {
            let mut attributes: Attributes = vec![("ownergraph.api_calls", end.api_calls.into())];
            if http_status != 0 {
                attributes.push(("http.response.status_code", http_status.into()));
            }
            let mut span = followed.leased(lease, now, outcome.as_str(), attributes);
            let is_failure = !is_settled(outcome) && outcome != Outcome::Conflict;
            span.failure = is_failure.then(|| end.message.clone());
            self.recorder.record(span);
        }
        (followed.ready, followed.heard) = (now, now);
        followed.attempts += 1;
        let goes = matches!(end.action, ActionKind::Delete | ActionKind::RemoveFinalizer);
        if followed.gone {
            self.end(&target.uid, GONE);
        } else if outcome == Outcome::Done && goes {
            followed.written = Some(now);
        } else if is_settled(outcome) {
            self.end(&target.uid, outcome.as_str());
        }
    }

    fn removed(&mut self, object: &ObjectRef, by_us: bool) {
        let Some(followed) = self.objects.get_mut(&object.uid) else { return };
        let now = Instant::now();
        let is_reported = followed.lease.is_none();
        // A watch is often faster than a report; then there was no wait.
        let since = if is_reported { followed.written } else { Some(now) };
        if let Some(since) = since {
            let attributes = vec![("ownergraph.by_us", by_us.into())];
            self.recorder.record(followed.child(self.recorder.span_id(), "confirm", (since, now), attributes));
        }
        if is_reported {
            self.end(&object.uid, GONE);
        } else {
            (followed.gone, followed.heard) = (true, now);
        }
    }

    fn end(&mut self, uid: &Uid, outcome: &'static str) {
        self.end_at(uid, Instant::now(), outcome);
    }

    fn end_at(&mut self, uid: &Uid, end: Instant, outcome: &'static str) {
        let Some(mut followed) = self.objects.remove(uid) else { return };
        if let Some(lease) = followed.lease.take() {
            self.recorder.record(followed.leased(lease, end, UNREPORTED, Vec::new()));
        }
        let trace = followed.context.trace;
        let outcome = if followed.gone { GONE } else { outcome };
        self.recorder.record(followed.span(end, outcome));
        if let Some(cascade) = self.cascades.get_mut(&trace) {
            cascade.open -= 1;
            cascade.last = cascade.last.max(end);
            if cascade.open == 0 {
                cascade.rests = Instant::now();
                // A cascade that proceeds object by object has no open object many times.
                self.resting.pop_back_if(|(_, last)| *last == trace);
                self.resting.push_back((cascade.rests, trace));
            }
        }
    }
}

impl Drop for Traces {
    /// Ends open spans when the process stops or the collector has failed.
    fn drop(&mut self) {
        self.finish("stopped");
    }
}

impl Cascade {
    fn span(self) -> Span {
        let mut attributes = describe(&self.root);
        attributes.push(("ownergraph.cause", self.why.word().into()));
        attributes.push(("ownergraph.objects", self.objects.into()));
        Span {
            context: self.context,
            parent: None,
            name: "cascade".into(),
            kind: Kind::Internal,
            start: self.start,
            end: self.last,
            attributes,
            failure: None,
        }
    }
}

impl Followed {
    fn child(
        &self,
        span: SpanId,
        name: &'static str,
        (start, end): (Instant, Instant),
        attributes: Attributes,
    ) -> Span {
        Span {
            context: Context { trace: self.context.trace, span },
            parent: Some(self.context.span),
            name: name.into(),
            kind: Kind::Internal,
            start,
            end,
            attributes,
            failure: None,
        }
    }

    fn leased(&self, lease: Lease, end: Instant, outcome: &'static str, more: Attributes) -> Span {
        let mut attributes = vec![
            ("ownergraph.action", lease.action.as_str().into()),
            ("ownergraph.executor", lease.executor.into()),
            ("ownergraph.attempt", lease.attempt.into()),
            ("ownergraph.outcome", outcome.into()),
        ];
        attributes.extend(more);
        Span { kind: Kind::Producer, ..self.child(lease.span, "lease", (lease.start, end), attributes) }
    }

    fn span(self, end: Instant, outcome: &'static str) -> Span {
        let mut attributes = describe(&self.target);
        attributes.push(("ownergraph.outcome", outcome.into()));
        attributes.push(("ownergraph.attempts", self.attempts.into()));
        Span {
            context: self.context,
            parent: Some(self.parent),
            name: "collect".into(),
            kind: Kind::Internal,
            start: self.start,
            end,
            attributes,
            failure: None,
        }
    }
}

fn describe(object: &ObjectRef) -> Attributes {
    vec![
        ("ownergraph.object.group", object.group.to_string().into()),
        ("ownergraph.object.kind", object.kind.to_string().into()),
        ("ownergraph.object.namespace", object.namespace.to_string().into()),
        ("ownergraph.object.name", object.name.to_string().into()),
        ("ownergraph.object.uid", object.uid.to_string().into()),
    ]
}

/// Whether this outcome ends the work on an object: success, or an owner that is alive.
fn is_settled(outcome: Outcome) -> bool {
    outcome.is_success() || outcome == Outcome::OwnerExists
}
