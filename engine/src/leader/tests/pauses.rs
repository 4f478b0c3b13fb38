//! Pauses: the work that they hold, the attempts that they stop, and the conditions under which they are known.

use super::*;
use crate::guard::{Guard, GuardId, GuardKind, Recorded, Rule};
use crate::hold::GUARDS_MAX;
use crate::scope::{Filter, Scope};
use crate::view::{GuardView, PlaceView, ReasonCode, VerdictView};
use crate::work::{HeldLease, Preconditions};

mod scopes;

const HOUR: Duration = Duration::from_secs(3600);
/// Time after which no session of an earlier term and no request in transit remains.
const EARLIER_TERMS: Duration = Duration::from_secs(15 + 5 + 30);

pub(super) fn pause_id(name: impl Into<Name>) -> GuardId {
    GuardId { kind: GuardKind::Pause, name: name.into() }
}

/// Returns a pause of everything at this version. Its uid is `uid-NAME`.
pub(super) fn pause(name: &str, rv: u64) -> Guard {
    Guard {
        id: pause_id(name),
        uid: uid(&format!("uid-{name}")),
        resource_version: version(rv),
        generation: 1,
        scope: Scope::default(),
        reason: "because".to_string(),
        actor: String::new(),
        created: Duration::ZERO,
        lifetime: Some(HOUR),
        elapsed: Duration::ZERO,
        read_at: Duration::ZERO,
        recorded: Recorded::default(),
        problem: String::new(),
        rule: Rule::Hold,
    }
}

pub(super) fn of_resources(resources: &[&str], mut pause: Guard) -> Guard {
    let resources = resources.iter().map(|resource| collection(resource)).collect();
    pause.scope.targets.push(Filter { resources, namespaces: Vec::new(), ..Filter::default() });
    pause
}

fn of_namespace(namespace: &str, mut pause: Guard) -> Guard {
    pause.scope.targets.push(Filter { resources: Vec::new(), namespaces: vec![namespace.into()], ..Filter::default() });
    pause
}

fn list(position: u64, pauses: Vec<Guard>) -> GuardList {
    GuardList { position: version(position), guards: pauses, more: false }
}

impl Bench {
    /// Creates a leader whose term is old enough that no executor of an earlier term can write, with this number of
    /// dependents of one absent owner.
    pub(super) fn cascade(dependents: usize, window: u32) -> Bench {
        let mut bench = Bench::without_executor();
        bench.pass(EARLIER_TERMS);
        bench.hello(STREAM, Hello { window, ..hello("e1", "i1") });
        for resource in ["configmaps", "nodes", "things"] {
            bench.serve(resource);
            bench.list(resource, 100, vec![]);
        }
        bench.seen("things", object("things", "o", 101));
        for number in 0..dependents {
            let name = format!("d{number}");
            bench.seen("configmaps", object("configmaps", &name, 102).owned_by("things", "o"));
        }
        bench.deleted("things", "o", 103);
        bench
    }

    pub(super) fn press(&mut self, pause: Guard) {
        self.input(Input::GuardSeen(pause));
    }

    fn resume(&mut self, name: &str) {
        self.input(Input::GuardGone { id: pause_id(name), uid: uid(&format!("uid-{name}")) });
    }

    pub(super) fn pause_view(&self, name: &str) -> GuardView {
        self.leader.queries().guards().into_iter().find(|view| &*view.id.name == name).unwrap()
    }

    /// Returns the leases that were stopped since the last call.
    pub(super) fn stopped(&mut self) -> Vec<LeaseId> {
        let mut stopped = Vec::new();
        for (_, message) in core::mem::take(&mut self.sent) {
            if let ToExecutor::Revoke { leases, mode: RevokeMode::Stop, .. } = message {
                stopped.extend(leases);
            }
        }
        stopped
    }

    pub(super) fn start(&mut self, lease: &WorkLease) {
        self.message(STREAM, ToLeader::Started { leases: vec![lease.id] });
    }

    /// Proves that `things/o` is absent at position 120, and starts the deletion of `configmaps/a`, which refers to it.
    pub(super) fn started_deletion(&mut self) -> WorkLease {
        self.seen("configmaps", object("configmaps", "a", 103).owned_by("things", "o"));
        self.pass(Duration::from_secs(1));
        self.found_again("o", FindingResult::Absent(Some(version(120))));
        let lease = self.take("a");
        self.start(&lease);
        self.stopped();
        lease
    }

    fn hand_back(&mut self, lease: LeaseId) {
        let returned = WorkReturn { lease, cause: ReturnCause::NotStarted };
        self.message(STREAM, ToLeader::Reports { reports: vec![], returns: vec![returned] });
    }
}

#[test]
fn a_pause_in_mid_cascade_stops_what_is_leased_and_holds_the_rest() {
    let mut bench = Bench::cascade(10, 4);
    let leases = core::mem::take(&mut bench.granted);
    assert_eq!(leases.len(), 4);
    bench.start(&leases[0]);
    bench.stopped();
    bench.press(pause("p", 1));
    let mut stopped = bench.stopped();
    stopped.sort();
    assert_eq!(stopped, leases.iter().map(|lease| lease.id).collect::<Vec<_>>(), "all that is leased, begun or not");
    let view = bench.pause_view("p");
    assert_eq!((view.held, view.effective, view.sessions_remaining), (6, false, 1), "{}", view.pending);
    for lease in &leases[1..] {
        bench.hand_back(lease.id);
    }
    assert!(!bench.pause_view("p").effective, "one attempt has not ended");
    bench.report(&leases[0], Outcome::Abandoned);
    bench.pass(Duration::from_millis(1));
    let view = bench.pause_view("p");
    assert_eq!((view.held, view.effective, view.sessions_remaining), (10, true, 0));
    assert_eq!(bench.leader.queries().status().held, 10);
    assert!(bench.events.contains(&Event::GuardEffective { id: pause_id("p") }));
    let explained = bench.leader.queries().explain(&uid("d3")).unwrap();
    assert_eq!(explained.verdict, VerdictView::Held);
    assert_eq!(explained.reasons[0].code, ReasonCode::Paused);
    assert_eq!(explained.reasons[0].detail, "pauses/p: because", "and what would release it");
    assert_eq!(explained.item.unwrap().place, PlaceView::Held { by: "pauses/p: because".to_string() });
    bench.pass(Duration::from_secs(600));
    assert_eq!(bench.grants(), NOTHING);
    bench.resume("p");
    assert_eq!(bench.grants().len(), 4, "the window is full again");
    assert_eq!(bench.leader.queries().status().held, 0);
}

#[test]
fn a_write_that_was_on_its_way_is_waited_for() {
    let mut bench = Bench::cascade(1, 4);
    let lease = bench.take("d0");
    bench.start(&lease);
    bench.press(pause("p", 1));
    assert!(!bench.pause_view("p").effective);
    bench.report(&lease, Outcome::Done);
    assert!(bench.pause_view("p").effective);
}

/// The executor gives a request up after a time, and the API server may still carry it out.
#[test]
fn a_write_that_got_no_answer_may_be_in_transit_and_is_waited_for() {
    for given_up in [false, true] {
        let mut bench = Bench::cascade(1, 4);
        let lease = bench.take("d0");
        bench.start(&lease);
        bench.press(pause("p", 1));
        if given_up {
            bench.pass(Duration::from_secs(120));
        }
        bench.report(&lease, Outcome::Ambiguous);
        let view = bench.pause_view("p");
        assert!(!view.effective && view.pending.contains("in transit"), "{given_up}: {}", view.pending);
        bench.pass(Duration::from_secs(29));
        assert!(!bench.pause_view("p").effective, "{given_up}");
        bench.pass(Duration::from_secs(2));
        assert!(bench.pause_view("p").effective, "{given_up}");
    }
}

#[test]
fn a_lease_of_an_earlier_term_that_gets_no_answer_is_waited_for() {
    const OTHER: StreamId = StreamId(7);
    let mut bench = Bench::cascade(1, 1);
    let lease = bench.take("d0");
    let granted = lease.id;
    let earlier = Term { number: 0, ..lease.term.clone() };
    let of_earlier = WorkLease { id: LeaseId { term: 0, number: 7 }, term: earlier.clone(), ..lease };
    let held = HeldLease { lease: of_earlier.id, item: of_earlier.item.id, term: earlier, started: true };
    bench.hello(OTHER, Hello { held: vec![held], ..hello("e2", "i2") });
    bench.press(pause("p", 1));
    bench.hand_back(granted);
    assert!(!bench.pause_view("p").effective, "the other one may write");
    let report = WorkReport { outcome: Outcome::Ambiguous, ..done(&of_earlier) };
    bench.message(OTHER, ToLeader::Reports { reports: vec![report], returns: Vec::new() });
    for second in 1..=30 {
        assert!(!bench.pause_view("p").effective, "before second {second}");
        bench.pass(Duration::from_secs(1));
        bench.message(OTHER, beat());
        bench.message(STREAM, beat());
    }
    assert!(bench.pause_view("p").effective, "{}", bench.pause_view("p").pending);
}

#[test]
fn only_what_destroys_is_held_and_never_leases_or_what_is_ours() {
    let mut bench = Bench::synced();
    for (group, resource, kind) in [("coordination.k8s.io", "leases", "Lease"), ("ownergraph.dev", "pauses", "Pause")] {
        let group_resource = GroupResource { group: group.into(), resource: resource.into() };
        let served = ServedKind { group_resource: group_resource.clone(), kind: kind.into(), ..served("configmaps") };
        bench.input(Input::KindServed(served));
        bench.input(Input::ListBegun { collection: group_resource.clone(), selectors: 0 });
        let object = object("configmaps", kind, 90).owned_by("things", "o");
        bench.input(Input::Listed { collection: group_resource.clone(), object });
        bench.input(Input::ListEnded { collection: group_resource, resource_version: version(100) });
    }
    bench.press(pause("p", 1));
    bench.seen("things", object("things", "o", 101));
    bench.seen("things", object("things", "alive", 101));
    bench.seen("things", object("things", "foreground", 101).terminating("foregroundDeletion"));
    bench.seen("things", object("things", "orphaning", 101).terminating("orphan"));
    bench.grants();
    bench.seen("configmaps", object("configmaps", "gone", 102).owned_by("things", "o"));
    bench.seen("configmaps", object("configmaps", "kept", 102).owned_by("things", "o").owned_by("things", "alive"));
    bench.seen("configmaps", object("configmaps", "orphan", 102).owned_by("things", "orphaning"));
    bench.seen("configmaps", object("configmaps", "waited-for", 102).blocking("things", "foreground"));
    bench.seen("configmaps", object("configmaps", "asked", 102).owned_by("things", "never-seen"));
    bench.deleted("things", "o", 104);
    bench.pass(Duration::from_secs(1));
    assert_eq!(bench.grants(), ["delete(Background) Lease", "delete(Background) Pause", "remove o from kept"]);
    assert_eq!(bench.pause_view("p").held, 3, "gone, orphan, waited-for");
    bench.resume("p");
    assert_eq!(
        bench.grants(),
        [
            "delete(Background) gone",
            "delete(Background) waited-for if foreground waits",
            "remove orphaning from orphan"
        ]
    );
}

#[test]
fn a_session_that_cannot_be_reached_is_waited_for_and_a_request_longer() {
    let mut bench = Bench::cascade(2, 4);
    bench.granted.clear();
    bench.input(Input::StreamClosed { stream: STREAM });
    let heard = bench.now;
    bench.press(pause("p", 1));
    let view = bench.pause_view("p");
    assert_eq!((view.held, view.effective, view.sessions_remaining), (0, false, 1));
    bench.pass(Duration::from_secs(20));
    assert_eq!(bench.pause_view("p").held, 2, "the session is over");
    assert_eq!((bench.pause_view("p").effective, bench.pause_view("p").sessions_remaining), (false, 1));
    bench.pass(Duration::from_millis(29_999));
    assert!(!bench.pause_view("p").effective, "its last request may still be on its way");
    bench.pass(Duration::from_millis(1));
    assert!(bench.pause_view("p").effective, "{:?} after it was heard of", bench.now.since(heard));
    assert_eq!(bench.grants(), NOTHING);
}

#[test]
fn an_executor_that_comes_back_is_told_to_stop_and_its_word_counts() {
    let mut bench = Bench::cascade(2, 4);
    let (a, b) = (bench.take("d0"), bench.take("d1"));
    bench.start(&a);
    bench.input(Input::StreamClosed { stream: STREAM });
    bench.press(pause("p", 1));
    bench.stopped();
    let held = |lease: &WorkLease, started| HeldLease { lease: lease.id, item: lease.item.id, term: term(1), started };
    bench.hello(StreamId(2), Hello { held: vec![held(&a, true), held(&b, false)], ..hello("e1", "i1") });
    assert_eq!(bench.stopped(), [a.id, b.id], "on the new stream");
    assert!(!bench.pause_view("p").effective);
    bench.input(Input::StreamClosed { stream: StreamId(2) });
    bench.hello(StreamId(3), hello("e1", "i1"));
    assert!(bench.pause_view("p").effective, "it holds nothing, by its own word");
    assert_eq!((bench.pause_view("p").held, bench.grants()), (2, Vec::new()));
}

#[test]
fn what_was_given_up_may_still_be_written() {
    let mut bench = Bench::cascade(1, 4);
    let lease = bench.take("d0");
    bench.pass(Duration::from_secs(20));
    let again = bench.take("d0");
    assert_ne!(lease.id, again.id, "granted elsewhere, while its executor keeps silent about it");
    bench.press(pause("p", 1));
    bench.hand_back(again.id);
    assert!(!bench.pause_view("p").effective);
    bench.message(STREAM, ToLeader::Reports { reports: vec![done(&lease)], returns: vec![] });
    assert!(bench.pause_view("p").effective, "its late word counts");
}

#[test]
fn sessions_of_an_earlier_term_keep_a_pause_from_being_effective() {
    let mut bench = Bench::cascade(1, 4);
    bench.take("d0");
    bench.press(pause("p", 1));
    bench.input(Input::TermLost { leader_endpoint: String::new() });
    assert!(!bench.pause_view("p").effective, "only a leader can know");
    bench.input(Input::TermGained(term(2)));
    bench.answer_reads(&Ok(GuardAnswer::Served(list(5, vec![pause("p", 1)]))));
    assert_eq!(bench.pause_view("p").held, 1);
    bench.stopped();
    let other = HeldLease { lease: LeaseId { term: 1, number: 77 }, item: 9, term: term(1), started: true };
    bench.hello(StreamId(2), Hello { held: vec![other.clone()], ..hello("e2", "i2") });
    assert_eq!(bench.stopped(), [other.lease], "what it began under the earlier leader");
    let live = |bench: &mut Bench, span: Duration| {
        for _ in 0..5 {
            bench.message(StreamId(2), beat());
            bench.pass(span / 5);
        }
    };
    live(&mut bench, EARLIER_TERMS - Duration::from_millis(5));
    let report = WorkReport { lease: other.lease, term: term(1), ..done(&lease_of(&other)) };
    bench.message(StreamId(2), ToLeader::Reports { reports: vec![report], returns: vec![] });
    let view = bench.pause_view("p");
    assert_eq!(
        (view.effective, view.sessions_remaining),
        (false, 2),
        "the one that was sent away, and perhaps others that have not said hello"
    );
    bench.pass(Duration::from_millis(5));
    assert!(bench.pause_view("p").effective);
}

/// Returns a lease as its holder knows it, with all fields that a report needs.
fn lease_of(held: &HeldLease) -> WorkLease {
    let item = crate::work::WorkItem {
        id: held.item,
        target: bench_target(),
        preconditions: Preconditions {
            resource_version: ResourceVersion::parse("1"),
            facts_digest: 0,
            must_be_terminating: false,
        },
        action: Action::RemoveFinalizer { finalizer: Name::from("orphan") },
        read_first: false,
        generation: 1,
    };
    WorkLease {
        id: held.lease,
        term: held.term.clone(),
        item,
        attempt: 1,
        execution_limit: Duration::from_secs(30),
        previous_attempt_ambiguous: false,
        traceparent: None,
    }
}

fn bench_target() -> ObjectRef {
    ObjectRef {
        group: "".into(),
        version: "v1".into(),
        resource: "configmaps".into(),
        kind: "ConfigMap".into(),
        namespace: "ns".into(),
        name: "x".into(),
        uid: uid("x"),
    }
}

#[test]
fn a_pause_ends_by_itself() {
    let mut bench = Bench::cascade(1, 0);
    bench.press(Guard { lifetime: Some(Duration::from_secs(60)), ..pause("p", 1) });
    bench.message(STREAM, ToLeader::Window { max_outstanding: 9 });
    bench.pass(Duration::from_millis(59_999));
    assert_eq!(bench.grants(), NOTHING);
    bench.pass(Duration::from_millis(1));
    assert_eq!(bench.grants(), ["delete(Background) d0"]);
    assert!(bench.pause_view("p").over);
    assert!(bench.events.iter().any(|event| matches!(event, Event::GuardEnded { why: "its lifetime has passed", .. })));
    // The resource of the pause still exists, and is shown again.
    bench.press(Guard { lifetime: Some(Duration::from_secs(60)), ..pause("p", 2) });
    bench.input(Input::GuardsListed {
        kind: GuardKind::Pause,
        list: list(9, vec![Guard { elapsed: HOUR, ..pause("q", 3) }, pause("p", 2)]),
    });
    assert!(bench.pause_view("q").over, "one that is over when it is first seen never holds");
    assert!(!bench.pause_view("p").over, "a longer lifetime revives it");
    assert_eq!(
        bench.pause_view("p").until.unwrap().since(bench.now),
        HOUR - Duration::from_secs(60),
        "from its beginning"
    );
    bench.press(Guard { lifetime: Some(Duration::from_secs(30)), ..pause("p", 4) });
    bench.pass(Duration::ZERO);
    assert!(bench.pause_view("p").over, "a shorter one ends it");
}

#[test]
fn a_pause_gets_the_longest_lifetime() {
    let mut bench = Bench::cascade(1, 0);
    bench.press(pause("p", 1));
    bench.press(Guard { lifetime: Some(Duration::MAX), ..pause("p", 2) });
    bench.pass(2 * HOUR);
    assert!(!bench.pause_view("p").over);
}

#[test]
fn pauses_overlap() {
    let mut bench = Bench::cascade(3, 0);
    bench.press(pause("b", 1));
    bench.press(of_namespace("ns", pause("a", 2)));
    bench.message(STREAM, ToLeader::Window { max_outstanding: 9 });
    assert_eq!((bench.pause_view("a").held, bench.pause_view("b").held), (3, 0), "the first by name, in any order");
    bench.resume("b");
    assert_eq!((bench.grants(), bench.pause_view("a").held), (Vec::new(), 3), "the other still holds them");
    bench.press(pause("c", 3));
    bench.press(of_namespace("elsewhere", pause("a", 4)));
    assert!(bench.leader.queries().guards()[0].scope.targets.len() == 1);
    assert_eq!((bench.grants(), bench.pause_view("c").held), (Vec::new(), 3), "a narrower scope releases to the other");
    bench.resume("c");
    assert_eq!(bench.grants().len(), 3);
}

#[test]
fn the_order_in_which_pauses_are_shown_does_not_matter() {
    let new = || Guard { uid: uid("uid-second"), ..pause("p", 9) };
    // The writer shows the pause first. The watch then lags, and shows an earlier pause of the same name and its end.
    let mut bench = Bench::cascade(1, 0);
    bench.press(new());
    bench.resume("p");
    assert_eq!(bench.pause_view("p").uid, uid("uid-second"), "the end of an earlier one of its name is not its own");
    // An older state of the same pause has no effect.
    bench.press(of_namespace("elsewhere", Guard { uid: uid("uid-second"), ..pause("p", 8) }));
    assert_eq!(bench.pause_view("p").scope, Scope::default());
    // A list from before the creation of the pause does not contain it. A list from after the creation without the
    // pause ends it.
    bench.input(Input::GuardsListed { kind: GuardKind::Pause, list: list(8, vec![]) });
    assert_eq!(bench.leader.queries().guards().len(), 1);
    bench.input(Input::GuardsListed { kind: GuardKind::Pause, list: list(10, vec![]) });
    assert_eq!(bench.leader.queries().guards().len(), 0);
}

#[test]
fn a_new_leader_destroys_nothing_before_it_knows_which_pauses_there_are() {
    let take_over = || {
        let mut bench = Bench::cascade(1, 9);
        bench.input(Input::TermLost { leader_endpoint: String::new() });
        bench.granted.clear();
        bench.input(Input::TermGained(term(2)));
        bench.hello(StreamId(2), hello("e2", "i2"));
        bench.seen("configmaps", object("configmaps", "asked", 105).owned_by("things", "never-seen"));
        bench.pass(Duration::from_millis(300));
        assert_eq!(bench.grants(), NOTHING);
        assert_eq!(bench.questions(), ["never-seen by List"], "questions are asked");
        assert!(bench.leader.queries().status().guards_unknown.is_some() && bench.leader.queries().status().held == 1);
        bench
    };
    let mut bench = take_over();
    bench.answer_reads(&Ok(GuardAnswer::NotServed));
    assert_eq!(bench.grants(), ["delete(Background) d0"]);
    assert_eq!(bench.leader.queries().status().guards_unknown, None);

    let mut bench = take_over();
    bench.answer_reads(&Ok(GuardAnswer::Served(list(7, vec![pause("p", 6)]))));
    assert_eq!((bench.grants(), bench.pause_view("p").held), (Vec::new(), 1));

    let mut bench = take_over();
    for _ in 0..3 {
        bench.answer_reads(&Err("403 Forbidden".to_string()));
        assert!(bench.leader.queries().status().guards_unknown.unwrap().contains("403"), "it says why");
        bench.pass(Duration::from_secs(1));
    }
    let told = bench.events.iter().filter(|event| matches!(event, Event::GuardsUnknown { .. })).count();
    assert_eq!((bench.grants(), told), (Vec::new(), 1));
    bench.answer_reads(&Ok(GuardAnswer::Served(list(7, vec![]))));
    assert_eq!(bench.grants(), ["delete(Background) d0"]);
    let told = bench.events.iter().rfind(|event| !matches!(event, Event::Decided { .. } | Event::Granted { .. }));
    assert_eq!(told, Some(&Event::GuardsKnown { kind: GuardKind::Pause }));
}

#[test]
fn an_answer_from_before_the_term_is_no_answer() {
    let mut bench = Bench::cascade(1, 0);
    bench.input(Input::TermLost { leader_endpoint: String::new() });
    bench.input(Input::TermGained(term(2)));
    let old = bench.reads.pop().unwrap();
    bench.input(Input::TermLost { leader_endpoint: String::new() });
    bench.input(Input::TermGained(term(3)));
    bench.input(Input::GuardsRead { read: old, answer: Ok(GuardAnswer::NotServed) });
    assert!(bench.leader.queries().status().guards_unknown.is_some());
}

#[test]
fn a_lost_watch_of_pauses_is_made_up_for_by_lists_and_then_holds() {
    let mut bench = Bench::cascade(0, 9);
    bench.input(Input::GuardsListed { kind: GuardKind::Pause, list: list(5, vec![]) });
    bench.input(Input::GuardsLost { kind: GuardKind::Pause, error: "cut".to_string() });
    for second in 0..30 {
        assert_eq!(bench.reads.len(), usize::from(second % 2 == 0), "second {second}");
        bench.answer_reads(&Ok(GuardAnswer::Served(list(6 + second, vec![]))));
        bench.pass(Duration::from_secs(1));
    }
    assert_eq!(bench.leader.queries().status().guards_unknown, None, "lists do as well");
    for _ in 0..12 {
        bench.answer_reads(&Err("refused".to_string()));
        bench.pass(Duration::from_secs(1));
    }
    assert!(bench.leader.queries().status().guards_unknown.unwrap().contains("refused"));
    bench.seen("things", object("things", "o2", 110));
    bench.seen("configmaps", object("configmaps", "a", 111).owned_by("things", "o2"));
    bench.deleted("things", "o2", 112);
    assert_eq!((bench.grants(), bench.leader.queries().status().held), (Vec::new(), 1));
    bench.input(Input::GuardsFollowed { kind: GuardKind::Pause, position: None });
    bench.answer_reads(&Ok(GuardAnswer::Served(list(90, vec![]))));
    assert_eq!(bench.grants(), ["delete(Background) a"]);
    bench.pass(Duration::from_secs(60));
    assert_eq!(bench.reads, [], "the watch follows again");
}

#[test]
fn more_pauses_than_are_kept_hold_everything_until_there_are_fewer() {
    let mut bench = Bench::cascade(1, 0);
    for number in 0..GUARDS_MAX {
        bench.press(of_namespace("elsewhere", pause(&format!("p{number}"), 1)));
    }
    assert_eq!(bench.leader.queries().status().held, 0);
    bench.press(of_namespace("elsewhere", pause("one-more", 2)));
    assert_eq!(bench.leader.queries().status().held, 1);
    assert!(bench.leader.queries().status().guards_unknown.unwrap().contains("1000"));
    bench.resume("p0");
    assert_eq!(bench.leader.queries().status().held, 1, "which one was left out is not known");
    let rest = (1..GUARDS_MAX).map(|number| of_namespace("elsewhere", pause(&format!("p{number}"), 1))).collect();
    bench.answer_reads(&Ok(GuardAnswer::Served(list(3, rest))));
    assert_eq!((bench.leader.queries().status().held, bench.leader.queries().status().guards_unknown), (0, None));
}

#[test]
fn a_read_from_before_the_last_deletion_of_too_many_pauses_is_repeated() {
    let mut bench = Bench::cascade(1, 0);
    let all = |from: usize| -> Vec<Guard> {
        (from..=GUARDS_MAX + 1).map(|number| of_namespace("elsewhere", pause(&format!("p{number}"), 1))).collect()
    };
    all(0).into_iter().for_each(|pause| bench.press(pause));
    bench.resume("p0");
    bench.resume("p1");
    bench.answer_reads(&Ok(GuardAnswer::Served(list(3, all(1)))));
    assert_eq!(bench.leader.queries().status().held, 1, "the list is from before the second deletion");
    bench.pass(Duration::from_secs(3));
    bench.answer_reads(&Ok(GuardAnswer::Served(list(4, all(2)))));
    assert_eq!((bench.leader.queries().status().held, bench.leader.queries().status().guards_unknown), (0, None));
}

#[test]
fn after_the_store_went_back_pauses_are_asked_for_and_those_known_hold_on() {
    let mut bench = Bench::cascade(0, 9);
    bench.press(pause("p", 104));
    bench.press(pause("q", 105));
    bench.bookmark("configmaps", 50);
    assert!(bench.leader.queries().status().guards_unknown.is_some());
    assert_eq!(bench.leader.queries().guards().len(), 2);
    bench.answer_reads(&Ok(GuardAnswer::Served(list(51, vec![of_namespace("elsewhere", pause("p", 40))]))));
    let pauses = bench.leader.queries().guards();
    assert_eq!(pauses.len(), 1, "what the store holds now counts, at whatever version");
    assert_eq!(pauses[0].scope.targets.len(), 1);
}

#[test]
fn an_owner_waits_for_a_held_dependent_that_rests_on_its_waiting() {
    let mut bench = Bench::cascade(0, 9);
    bench.press(pause("p", 1));
    bench.seen("things", object("things", "f", 110).terminating("foregroundDeletion"));
    bench.seen("configmaps", object("configmaps", "d", 111).owned_by("things", "f"));
    bench.pass(Duration::from_secs(2));
    bench.answer_probes(120, &[]);
    let grants = bench.grants();
    assert!(grants.iter().all(|grant| !grant.contains(" d")), "{grants:?}");
    bench.resume("p");
    assert_eq!(bench.grants(), ["delete(Background) d if f waits"]);
}
