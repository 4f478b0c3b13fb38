use super::*;
use engine::evidence::Proof;
use engine::object::ResourceVersion;
use engine::work::{Action, LeaseId, Preconditions, PropagationPolicy, Term, WorkItem, WorkLease};
use runtime::traces::{Incoming, Ratio};
use tokio::sync::mpsc::Receiver;
use tokio::time::advance;

fn object(name: &str) -> ObjectRef {
    ObjectRef {
        group: "".into(),
        version: "v1".into(),
        resource: "configmaps".into(),
        kind: "ConfigMap".into(),
        namespace: "shop".into(),
        name: name.into(),
        uid: Uid::parse(&format!("uid-{name}")).unwrap(),
    }
}

fn preconditions() -> Preconditions {
    Preconditions { resource_version: ResourceVersion::parse("1"), facts_digest: 0, must_be_terminating: false }
}

fn grounds(chain: &[ObjectRef]) -> Box<Grounds> {
    Box::new(Grounds { preconditions: preconditions(), chain: chain.to_vec(), ..*Grounds::unknown(7) })
}

fn decided(target: &ObjectRef, action: ActionKind, chain: &[ObjectRef]) -> Event {
    let owner = chain.first().unwrap_or(target);
    let proof = Proof::WatchDeleted { resource_version: ResourceVersion::parse("5") };
    let (kind, namespace) = (owner.kind.clone(), owner.namespace.clone());
    let causes = vec![Cause::OwnerAbsent { kind, namespace, name: owner.name.clone(), uid: owner.uid.clone(), proof }];
    let grounds = Some(grounds(chain));
    Event::Decided { item: 1, generation: 1, target: target.clone(), action, causes, grounds, repeated: false }
}

fn granted(target: &ObjectRef, action: ActionKind) -> Event {
    let executor = "executor-1".into();
    Event::Granted { item: 1, target: target.clone(), action, executor, attempt: 1, grounds: grounds(&[]) }
}

fn attempted(target: &ObjectRef, action: ActionKind, outcome: Outcome) -> Event {
    Event::Attempted {
        item: 1,
        age: Duration::ZERO,
        end: AttemptEnd {
            target: target.clone(),
            action,
            outcome,
            executor: "executor-1".into(),
            http_status: 200,
            message: "said".to_owned(),
            audit_id: String::new(),
            api_calls: 1,
            attempt: 1,
            grounds: grounds(&[]),
        },
    }
}

fn removed(object: &ObjectRef) -> Event {
    Event::Removed { object: object.clone(), caused_by_us: true, owner_gone: None }
}

fn grant(target: &ObjectRef) -> ToExecutor {
    let item = WorkItem {
        id: 1,
        target: target.clone(),
        preconditions: preconditions(),
        action: Action::Delete { propagation_policy: PropagationPolicy::Background, owner_checks: Vec::new() },
        read_first: false,
        generation: 1,
    };
    let lease = WorkLease {
        id: LeaseId { term: 1, number: 1 },
        term: Term { election: "election".into(), number: 1 },
        item,
        attempt: 1,
        execution_limit: Duration::from_secs(30),
        previous_attempt_ambiguous: false,
        traceparent: None,
    };
    ToExecutor::Grant { leases: vec![lease] }
}

fn labelled(traces: &Traces, target: &ObjectRef) -> Option<Incoming> {
    let mut message = grant(target);
    traces.label(&mut message);
    let ToExecutor::Grant { leases } = message else { panic!("a label changes nothing else") };
    leases[0].traceparent.as_deref().map(|text| Incoming::parse(text).expect("it is a traceparent"))
}

struct Bench {
    traces: Traces,
    spans: Receiver<Span>,
}

impl Bench {
    fn new(ratio: &str) -> Bench {
        let (recorder, open, spans) = Recorder::to_memory(ratio.parse::<Ratio>().unwrap());
        Bench { traces: Traces::new(recorder, open), spans }
    }

    /// Deletes this object as one of a cascade, to its end.
    fn collect(&mut self, target: &ObjectRef, chain: &[ObjectRef]) {
        self.traces.event(&decided(target, ActionKind::Delete, chain));
        self.traces.event(&granted(target, ActionKind::Delete));
        self.traces.event(&attempted(target, ActionKind::Delete, Outcome::Done));
        self.traces.event(&removed(target));
    }

    fn recorded(&mut self) -> Vec<Span> {
        std::iter::from_fn(|| self.spans.try_recv().ok()).collect()
    }

    /// All spans, after everything has ended.
    async fn over(&mut self) -> Vec<Span> {
        advance(OVER_AFTER).await;
        self.traces.round();
        self.recorded()
    }
}

fn one<'a>(spans: &'a [Span], name: &str) -> &'a Span {
    let mut of_that_name = spans.iter().filter(|span| span.name == name);
    let found = of_that_name.next().unwrap_or_else(|| panic!("no {name} in {spans:#?}"));
    assert!(of_that_name.next().is_none(), "two spans are called {name}: {spans:#?}");
    found
}

fn text(span: &Span, name: &str) -> String {
    let found = span.attributes.iter().find(|(of, _)| *of == name);
    match found.unwrap_or_else(|| panic!("{span:?} has no {name}")) {
        (_, Value::Text(text)) => text.to_string(),
        (_, Value::Number(number)) => number.to_string(),
        (_, Value::Flag(flag)) => flag.to_string(),
    }
}

#[tokio::test(start_paused = true)]
async fn a_deletion_is_a_tree_from_the_moment_its_owner_went() {
    let mut bench = Bench::new("1");
    let (owner, target) = (object("owner"), object("target"));
    let begun = Instant::now();
    bench.traces.event(&removed(&owner));
    advance(Duration::from_secs(1)).await;
    bench.traces.round();
    bench.traces.event(&decided(&target, ActionKind::Delete, std::slice::from_ref(&owner)));
    advance(Duration::from_secs(1)).await;
    bench.traces.event(&granted(&target, ActionKind::Delete));
    let label = labelled(&bench.traces, &target).expect("its trace is recorded");
    advance(Duration::from_secs(1)).await;
    bench.traces.event(&attempted(&target, ActionKind::Delete, Outcome::Done));
    advance(Duration::from_secs(1)).await;
    bench.traces.event(&removed(&target));
    let spans = bench.over().await;
    assert_eq!(spans.len(), 6, "{spans:#?}");
    let cascade = one(&spans, "cascade");
    assert_eq!((cascade.start, cascade.end), (begun, begun + Duration::from_secs(4)));
    assert_eq!(text(cascade, "ownergraph.cause"), "owner_gone");
    assert_eq!(text(cascade, "ownergraph.object.name"), "owner");
    let collect = one(&spans, "collect");
    assert_eq!((cascade.parent, collect.parent), (None, Some(cascade.context.span)));
    assert_eq!(text(collect, "ownergraph.outcome"), "gone");
    let mut last = collect.start;
    for name in ["decide", "queue", "lease", "confirm"] {
        let span = one(&spans, name);
        assert_eq!(span.parent, Some(collect.context.span), "{name}");
        assert_eq!(span.start, last, "{name} begins where the one before ended");
        last = span.end;
    }
    assert_eq!(last, collect.end);
    assert!(spans.iter().all(|span| span.context.trace == trace_of(&owner.uid)));
    assert_eq!(label.context, one(&spans, "lease").context);
    assert!(label.sampled);
    assert_eq!(text(one(&spans, "decide"), "ownergraph.cause"), "owner_absent");
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_faster_than_the_report_changes_nothing_but_the_order() {
    let mut bench = Bench::new("1");
    let (owner, target) = (object("owner"), object("target"));
    bench.traces.event(&decided(&target, ActionKind::Delete, &[owner]));
    bench.traces.event(&granted(&target, ActionKind::Delete));
    bench.traces.event(&removed(&target));
    advance(Duration::from_secs(1)).await;
    bench.traces.event(&attempted(&target, ActionKind::Delete, Outcome::Done));
    let spans = bench.over().await;
    assert_eq!(text(one(&spans, "lease"), "ownergraph.outcome"), "done");
    let (collect, confirm) = (one(&spans, "collect"), one(&spans, "confirm"));
    assert_eq!((confirm.start, confirm.parent), (confirm.end, Some(collect.context.span)));
    assert_eq!(
        (text(collect, "ownergraph.outcome"), collect.end - confirm.end),
        (GONE.to_owned(), Duration::from_secs(1))
    );
}

#[tokio::test(start_paused = true)]
async fn what_depends_on_an_object_stands_below_it() {
    let mut bench = Bench::new("1");
    let (root, middle, leaf) = (object("root"), object("middle"), object("leaf"));
    bench.traces.event(&removed(&root));
    bench.collect(&middle, std::slice::from_ref(&root));
    bench.collect(&leaf, &[middle.clone(), root]);
    let spans = bench.over().await;
    let of = |name: &str| {
        let named = |span: &&Span| span.name == "collect" && text(span, "ownergraph.object.name") == name;
        spans.iter().find(named).unwrap()
    };
    assert_eq!(of("leaf").parent, Some(of("middle").context.span));
    assert_eq!(of("middle").parent, Some(one(&spans, "cascade").context.span));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_kept_or_told_of_what_is_not_recorded() {
    let mut bench = Bench::new("0");
    let (owner, target) = (object("owner"), object("target"));
    bench.traces.event(&decided(&target, ActionKind::Delete, &[owner]));
    bench.traces.event(&granted(&target, ActionKind::Delete));
    assert_eq!(labelled(&bench.traces, &target), None);
    assert!(bench.traces.objects.is_empty() && bench.traces.cascades.is_empty());
    bench.traces.event(&attempted(&target, ActionKind::Delete, Outcome::Done));
    assert!(bench.over().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_patch_is_over_with_its_report_and_a_failure_is_not() {
    let mut bench = Bench::new("1");
    let (owner, target) = (object("owner"), object("target"));
    let patch = ActionKind::RemoveOwnerReferences;
    bench.traces.event(&decided(&target, patch, &[owner]));
    bench.traces.event(&granted(&target, patch));
    bench.traces.event(&attempted(&target, patch, Outcome::Forbidden));
    assert!(labelled(&bench.traces, &target).is_none(), "the lease is over");
    bench.traces.event(&granted(&target, patch));
    bench.traces.event(&attempted(&target, patch, Outcome::Done));
    assert!(bench.traces.objects.is_empty());
    let spans = bench.over().await;
    let leases: Vec<&Span> = spans.iter().filter(|span| span.name == "lease").collect();
    assert_eq!(leases.len(), 2);
    assert_eq!((leases[0].failure.as_deref(), leases[1].failure.as_deref()), (Some("said"), None));
    assert_eq!(text(one(&spans, "collect"), "ownergraph.attempts"), "2");
}

#[tokio::test(start_paused = true)]
async fn a_grant_that_came_back_unbegun_has_its_own_span() {
    let mut bench = Bench::new("1");
    let (owner, target) = (object("owner"), object("target"));
    bench.traces.event(&decided(&target, ActionKind::Delete, &[owner]));
    bench.traces.event(&granted(&target, ActionKind::Delete));
    let first = labelled(&bench.traces, &target).unwrap();
    bench.traces.event(&granted(&target, ActionKind::Delete));
    let second = labelled(&bench.traces, &target).unwrap();
    assert_ne!(first.context.span, second.context.span);
    let spans = bench.recorded();
    let lease = one(&spans, "lease");
    assert_eq!((lease.context, text(lease, "ownergraph.outcome")), (first.context, UNREPORTED.to_owned()));
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_term_and_of_the_process_end_what_is_open() {
    for end in ["term_lost", "stopped"] {
        let mut bench = Bench::new("1");
        let (owner, target) = (object("owner"), object("target"));
        bench.traces.event(&decided(&target, ActionKind::Delete, &[owner]));
        bench.traces.event(&granted(&target, ActionKind::Delete));
        let Bench { mut traces, mut spans } = bench;
        if end == "term_lost" {
            traces.event(&Event::TermLost);
            assert!(traces.objects.is_empty() && traces.cascades.is_empty() && traces.resting.is_empty());
        } else {
            drop(traces);
        }
        let spans: Vec<Span> = std::iter::from_fn(|| spans.try_recv().ok()).collect();
        assert_eq!(text(one(&spans, "collect"), "ownergraph.outcome"), end);
        assert_eq!(text(one(&spans, "lease"), "ownergraph.outcome"), UNREPORTED);
        assert!(one(&spans, "cascade").parent.is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn a_large_cascade_is_thinned_and_counted() {
    let mut bench = Bench::new("1");
    let root = object("root");
    for number in 0..5_000 {
        bench.collect(&object(&format!("o{number}")), std::slice::from_ref(&root));
    }
    let recorded = bench.over().await;
    let collected = recorded.iter().filter(|span| span.name == "collect").count();
    assert!((WHOLE_MAX + 10..WHOLE_MAX + 150).contains(&collected), "{collected}");
    assert_eq!(text(one(&recorded, "cascade"), "ownergraph.objects"), "5000");
}

#[tokio::test(start_paused = true)]
async fn everything_that_is_open_is_bounded_and_what_is_never_heard_of_again_is_given_up() {
    let mut bench = Bench::new("1");
    for number in 0..2 * CASCADES_MAX {
        let target = object(&format!("o{number}"));
        bench.traces.event(&decided(&target, ActionKind::Delete, &[object(&format!("root{number}"))]));
    }
    assert_eq!((bench.traces.cascades.len(), bench.traces.objects.len()), (CASCADES_MAX, CASCADES_MAX));
    bench.recorded();
    advance(GIVEN_UP_AFTER).await;
    bench.traces.round();
    assert!(bench.traces.objects.is_empty());
    bench.over().await;
    assert!(bench.traces.cascades.is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_is_given_up_ended_when_it_was_last_heard_of() {
    let mut bench = Bench::new("1");
    let (owner, target) = (object("owner"), object("target"));
    bench.traces.event(&removed(&owner));
    bench.traces.event(&decided(&target, ActionKind::Delete, std::slice::from_ref(&owner)));
    advance(Duration::from_secs(5)).await;
    bench.traces.round();
    bench.traces.event(&granted(&target, ActionKind::Delete));
    let heard = Instant::now();
    advance(GIVEN_UP_AFTER + LOOK_EVERY).await;
    bench.traces.round();
    let recorded = bench.recorded();
    for name in ["collect", "lease"] {
        assert_eq!(one(&recorded, name).end, heard, "{name}");
    }
    assert_eq!(text(one(&recorded, "collect"), "ownergraph.outcome"), "given_up");
    assert_eq!(one(&bench.over().await, "cascade").end, heard);
    assert!(bench.traces.cascades.is_empty() && bench.traces.resting.is_empty());
}

#[test]
fn a_cascade_begins_when_its_root_was_first_seen_to_be_going() {
    let mut moments = Moments::default();
    let (uid, begun) = (object("a").uid, Instant::now());
    assert_eq!(moments.of(&uid, begun), None);
    moments.note(&uid, begun, Why::Terminating);
    let later = begun + Duration::from_secs(1);
    moments.note(&uid, later, Why::Terminating);
    assert_eq!(moments.of(&uid, later), Some((begun, Why::Terminating)));
    moments.note(&uid, later, Why::Gone);
    moments.note(&uid, later, Why::Absent);
    assert_eq!(moments.of(&uid, later), Some((later, Why::Gone)));
    assert_eq!(moments.of(&uid, later + Duration::from_secs(3600)), None);
}
