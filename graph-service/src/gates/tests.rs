//! Each transport with an engine in memory, or behind TLS on loopback.

use super::inbox::{Event, Inbox};
use super::router::Configured;
use super::stream::{Flood, Joined, NotJoined, Out, STRAYS_MAX};
use super::transport::read;
use super::{Router, Unmatched};
use crate::metrics::gates::GateMetrics;
use engine::guard::{Answer, Answered, Cascade, FailurePolicy, Gate, Question};
use engine::object::{Name, ObjectRef, ResourceVersion, Uid};
use engine::work::ActionKind;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

mod policies;
mod taking_back;
mod webhooks;

const GATE: &str = "production";

/// A question of the gate [`GATE`] about a claim in a namespace.
pub(crate) fn question(number: u64) -> Question {
    Question {
        gate: GATE.into(),
        engine: 0,
        number,
        timeout: Duration::from_secs(2),
        action: ActionKind::Delete,
        target: object("persistentvolumeclaims", "PersistentVolumeClaim", &format!("data-{number}")),
        resource_version: ResourceVersion::parse("17"),
        chain: vec![object("statefulsets", "StatefulSet", "data")],
        decision: 7,
        cascade: None,
        observe_only: false,
    }
}

fn object(resource: &str, kind: &str, name: &str) -> ObjectRef {
    ObjectRef {
        group: if kind == "StatefulSet" { "apps" } else { "" }.into(),
        version: "v1".into(),
        resource: resource.into(),
        kind: kind.into(),
        namespace: "shop".into(),
        name: name.into(),
        uid: Uid::parse("11111111-1111-1111-1111-111111111111").unwrap(),
    }
}

fn rule() -> Gate {
    Gate {
        roots_only: false,
        observe_only: false,
        timeout: Duration::from_secs(2),
        failure_policy: FailurePolicy::Hold,
        max_hold: Duration::from_secs(600),
        allow_after_max_hold: false,
        engine: 0,
        bypass_until: Duration::ZERO,
        bypass: String::new(),
        bypass_by: String::new(),
    }
}

/// Gates with this spec, as the router knows them.
pub(crate) fn configured(spec: &Value) -> BTreeMap<Name, Configured> {
    BTreeMap::from([(GATE.into(), Configured { transport: read(spec).unwrap(), rule: rule() })])
}

/// A router with one gate.
fn router(spec: &Value) -> (Router, Inbox, GateMetrics) {
    let metrics = GateMetrics::default();
    let (router, inbox) = Router::new(metrics.clone());
    router.configure(configured(spec));
    (router, inbox, metrics)
}

fn streamed() -> (Router, Inbox, GateMetrics) {
    router(&json!({"stream": {}}))
}

/// The answers among the events, by number.
pub(crate) fn answers(events: Vec<Event>) -> BTreeMap<u64, Answered> {
    let answers = events.into_iter().filter_map(|event| match event {
        Event::Answered(answered) => Some((answered.number, answered)),
        Event::Connected { .. } | Event::PolicyChanged { .. } => None,
        Event::TakenBack { .. } | Event::NeedsTime { .. } => None,
    });
    answers.collect()
}

/// Waits for so many answers while the router runs.
async fn answered(router: &Router, inbox: &Inbox, count: usize) -> BTreeMap<u64, Answered> {
    let wait = async {
        let mut all = BTreeMap::new();
        while all.len() < count {
            all.extend(answers(inbox.next().await));
        }
        all
    };
    tokio::select! {
        ended = router.clone().run() => panic!("the router ended: {ended:?}"),
        all = wait => all,
    }
}

/// The numbers of the questions that an instance gets now.
fn asked(joined: &Joined) -> Vec<u64> {
    let mut all = Vec::new();
    while let Some(out) = futures::FutureExt::now_or_never(joined.next()) {
        match out {
            Out::Ask(questions) => all.extend(questions.iter().map(|(question, _)| question.number)),
            other @ (Out::Cancel(_) | Out::Drained | Out::GateClosed) => panic!("{other:?}"),
        }
    }
    all
}

fn allow(joined: &Joined, number: u64) -> Result<(), Flood> {
    joined.answer((number, Answer::Allow), ("policy", ""), Duration::ZERO)
}

#[test]
fn a_gate_without_an_instance_fails_at_once() {
    let (router, inbox, _) = streamed();
    router.ask(question(1));
    let found = answers(inbox.take());
    assert_eq!(found[&1].answer, Answer::Failed);
    assert_eq!(found[&1].message, "no instance of the policy engine is connected");
}

/// The leader reads a changed gate before its watch shows the change.
#[tokio::test(start_paused = true)]
async fn only_the_policy_engine_that_the_leader_knows_answers() {
    let cel = |engine: u64, condition: &str| {
        let mut gates = configured(&json!({"cel": {"expression": condition}}));
        gates.get_mut(GATE).unwrap().rule.engine = engine;
        gates
    };
    let (router, inbox) = Router::new(GateMetrics::default());
    router.configure(cel(1, "true"));
    for number in 1..=3 {
        router.ask(Question { engine: 2, ..question(number) });
    }
    router.ask(Question { engine: 1, ..question(4) });
    router.ask(Question { engine: 3, ..question(5) });
    router.cancel(&GATE.into(), &[3]);
    let before = answered(&router, &inbox, 1).await;
    assert_eq!(before.into_iter().map(|(number, of)| (number, of.answer)).collect::<Vec<_>>(), [(4, Answer::Allow)]);
    router.configure(cel(2, "false"));
    let after = answered(&router, &inbox, 2).await;
    assert_eq!(after.keys().copied().collect::<Vec<_>>(), [1, 2]);
    assert!(after.values().all(|of| of.answer != Answer::Allow), "{after:?}");
    router.configure(cel(3, "true"));
    assert_eq!(answered(&router, &inbox, 1).await[&5].answer, Answer::Allow);
}

#[test]
fn instances_share_questions_by_load_and_window() {
    let (router, inbox, metrics) = streamed();
    let wide = router.join(GATE, 0, "").unwrap();
    let narrow = router.join(GATE, 2, "").unwrap();
    assert_eq!(inbox.take(), [Event::Connected { gate: GATE.into(), instances: 2 }]);
    (1..=10).for_each(|number| router.ask(question(number)));
    let (of_wide, of_narrow) = (asked(&wide), asked(&narrow));
    assert_eq!((of_wide.len(), of_narrow.len()), (8, 2), "{of_wide:?} {of_narrow:?}");
    allow(&narrow, of_narrow[0]).unwrap();
    router.ask(question(11));
    assert_eq!(asked(&narrow), [11], "the instance with the fewest gets the next");
    assert_eq!(answers(inbox.take())[&of_narrow[0]].by, "policy");
    assert_eq!(metrics.open(), 10);
}

#[test]
fn questions_of_an_instance_that_is_gone_go_to_another_or_fail() {
    let (router, inbox, metrics) = streamed();
    let first = router.join(GATE, 0, "").unwrap();
    (1..=3).for_each(|number| router.ask(question(number)));
    assert_eq!(asked(&first), [1, 2, 3]);
    let second = router.join(GATE, 0, "").unwrap();
    drop(first);
    assert_eq!(asked(&second), [1, 2, 3]);
    allow(&second, 2).unwrap();
    drop(second);
    let found = answers(inbox.take());
    let of = |number: u64| found[&number].answer.clone();
    assert_eq!([of(1), of(2), of(3)], [Answer::Failed, Answer::Allow, Answer::Failed]);
    assert_eq!(metrics.open(), 0);
}

#[test]
fn an_instance_that_drains_keeps_what_it_has_read() {
    let (router, inbox, _) = streamed();
    let first = router.join(GATE, 0, "").unwrap();
    router.ask(question(1));
    assert_eq!(asked(&first), [1]);
    router.ask(question(2));
    let second = router.join(GATE, 0, "").unwrap();
    first.drain();
    router.ask(question(3));
    assert_eq!(asked(&second), [2, 3]);
    assert!(inbox.take().contains(&Event::Connected { gate: GATE.into(), instances: 1 }));
    assert_eq!(asked(&first), [0; 0]);
    allow(&first, 1).unwrap();
    assert!(matches!(futures::FutureExt::now_or_never(first.next()), Some(Out::Drained)));
    assert_eq!(answers(inbox.take())[&1].answer, Answer::Allow);
}

#[test]
fn late_repeated_and_unknown_answers_are_counted_and_a_flood_is_refused() {
    let (router, inbox, metrics) = streamed();
    let joined = router.join(GATE, 0, "").unwrap();
    (1..=2).for_each(|number| router.ask(question(number)));
    assert_eq!(asked(&joined), [1, 2]);
    router.cancel(&GATE.into(), &[2]);
    let told = futures::FutureExt::now_or_never(joined.next());
    assert!(matches!(&told, Some(Out::Cancel(numbers)) if numbers == &[2]), "{told:?}");
    for number in [1, 1, 2, 2, 99] {
        allow(&joined, number).unwrap();
    }
    assert_eq!(answers(inbox.take()).into_keys().collect::<Vec<_>>(), [1]);
    let counts = [Unmatched::Late, Unmatched::Twice, Unmatched::Unknown].map(|cause| metrics.count(cause.as_str()));
    assert_eq!(counts, [1, 2, 1]);
    let refused = (0..=STRAYS_MAX).find(|_| allow(&joined, 99) == Err(Flood));
    assert_eq!(refused, Some(STRAYS_MAX - 3));
}

#[test]
fn a_question_that_ends_before_it_is_read_is_not_told() {
    let (router, _inbox, metrics) = streamed();
    let joined = router.join(GATE, 1, "").unwrap();
    (1..=3).for_each(|number| router.ask(question(number)));
    router.cancel(&GATE.into(), &[1, 2]);
    assert_eq!(asked(&joined), [3]);
    assert_eq!(metrics.open(), 1);
}

#[test]
fn a_gate_that_changes_its_transport_drops_its_questions_and_ends_its_streams() {
    let (router, inbox, metrics) = streamed();
    let joined = router.join(GATE, 0, "").unwrap();
    router.ask(question(1));
    router.configure(configured(&json!({"stream": {}})));
    assert_eq!(asked(&joined), [1], "an equal transport changes nothing");
    router.configure(configured(&json!({"cel": {"expression": "true"}})));
    assert!(matches!(futures::FutureExt::now_or_never(joined.next()), Some(Out::GateClosed)));
    assert!(answers(inbox.take()).is_empty(), "the engine asks anew; the failure policy is not meant for this");
    assert_eq!(router.join(GATE, 0, "").unwrap_err(), NotJoined::OtherTransport);
    router.configure(BTreeMap::new());
    assert_eq!(router.join(GATE, 0, "").unwrap_err(), NotJoined::NotFound);
    assert_eq!(metrics.open(), 0);
}

#[test]
fn questions_and_instances_are_bounded() {
    let (router, inbox, _) = streamed();
    let joined: Vec<Joined> = std::iter::from_fn(|| router.join(GATE, 1, "").ok()).collect();
    assert_eq!(joined.len(), super::stream::INSTANCES_MAX);
    let most = u64::try_from(super::QUESTIONS_MAX).unwrap();
    (1..=most + 1).for_each(|number| router.ask(question(number)));
    let found = answers(inbox.take());
    assert_eq!(found.into_keys().collect::<Vec<_>>(), [most + 1]);
}
