use super::{
    are_settled, blocker_line, collection_line, executor_line, hidden_line, is_settled, leadership_line, oldest_open,
    unresolved_line,
};
use crate::messages::Leadership;
use engine::coverage::State;
use engine::object::{Access, Backend, GroupResource, ResourceVersion, ServedKind};
use engine::time::Time;
use engine::view::{BlockerView, CollectionStatus, ExecutorView, UnresolvedKind, Unseen, Waiting, Waits};
use engine::work::Term;
use runtime::clock::Clock;
use std::time::Duration;

fn collection(state: State, error: &str) -> CollectionStatus {
    CollectionStatus {
        kind: ServedKind {
            group_resource: GroupResource { group: "apps".into(), resource: "deployments".into() },
            kind: "Deployment".into(),
            version: "v1".into(),
            other_versions: Vec::new(),
            split: false,
            namespaced: true,
            access: Access::Watched,
            backend: Backend::Main,
            deletable: true,
            names: Default::default(),
        },
        state,
        position: Some(ResourceVersion::parse("4711")),
        objects: 3,
        error: error.to_owned(),
        since: Time::ZERO,
        progress: None,
        kept_apart: false,
        inconsistent: None,
    }
}

#[test]
fn leased_work_waits_until_an_attempt_ends_as_ready_work_does() {
    let seconds = |count| Some(Time::from_origin(Duration::from_secs(count)));
    let waits = |at, oldest| Waits { items: 1, oldest, ..Waits::none(at) };
    let others = [Waiting::Observed, Waiting::Held, Waiting::Protected, Waiting::BackingOff, Waiting::Blocked];
    let mut of = others.map(|at| waits(at, seconds(1))).to_vec();
    assert_eq!(oldest_open(&of), None);
    of.push(waits(Waiting::Leased, seconds(7)));
    assert_eq!(oldest_open(&of), seconds(7));
    of.push(waits(Waiting::Ready, seconds(5)));
    assert_eq!(oldest_open(&of), seconds(5));
}

#[tokio::test(start_paused = true)]
async fn a_collection_is_waited_for_until_its_first_error_or_for_a_while() {
    let clock = Clock::start();
    for state in [State::Synced, State::Stale, State::Failed, State::Ignored] {
        assert!(is_settled(&collection(state, ""), clock), "{state:?}");
    }
    assert!(!is_settled(&collection(State::Listing, ""), clock));
    assert!(is_settled(&collection(State::Listing, "403"), clock));
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(is_settled(&collection(State::Listing, ""), clock));
}

#[tokio::test(start_paused = true)]
async fn what_the_engine_has_not_taken_in_yet_is_waited_for() {
    let clock = Clock::start();
    let [ignored, listing, synced, failed] =
        [State::Ignored, State::Listing, State::Synced, State::Failed].map(|state| collection(state, ""));
    let table: [(&[&CollectionStatus], bool); 6] = [
        (&[], false),
        (&[&ignored], false),
        (&[&ignored, &listing], false),
        (&[&listing, &synced], false),
        (&[&ignored, &synced], true),
        (&[&failed, &synced], true),
    ];
    for (collections, settled) in table {
        let collections: Vec<CollectionStatus> = collections.iter().copied().cloned().collect();
        let states: Vec<State> = collections.iter().map(|collection| collection.state).collect();
        assert_eq!(are_settled(&collections, clock), settled, "{states:?}");
    }
}

#[test]
fn lines_name_what_stands_where() {
    assert_eq!(
        collection_line(&collection(State::Synced, "")),
        "collection: deployments.apps synced, 3 objects at 4711"
    );
    let failed = collection_line(&collection(State::Failed, "the API server answers 403"));
    assert_eq!(failed, "collection: deployments.apps failed, 3 objects at 4711: the API server answers 403");
    let (group, since) = ("example.com".into(), Time::ZERO);
    let mut kind = UnresolvedKind { group, kind: "Widget".into(), resources: Vec::new(), since, dependents: 2 };
    assert_eq!(unresolved_line(&kind), "unresolved: Widget.example.com is not served, 2 dependents wait for it");
    kind.resources = ["widgets", "wodgets"]
        .map(|resource| GroupResource { group: kind.group.clone(), resource: resource.into() })
        .to_vec();
    assert_eq!(
        unresolved_line(&kind),
        "unresolved: Widget.example.com is served as widgets.example.com and as wodgets.example.com; a reference does not say which resource it means, 2 dependents wait for it"
    );
    let executor = ExecutorView {
        executor: "a".into(),
        incarnation: "first".into(),
        version: "test".to_owned(),
        window: 4,
        started: 1,
        buffered: 2,
        overdue: 0,
        last_heard: Time::ZERO,
        draining: true,
        unauthenticated: false,
        connected: false,
        untrue_reports: 0,
    };
    assert_eq!(executor_line(&executor), "executor: a not connected, draining, window 4, 1 started, 2 buffered");
    let executor = ExecutorView { overdue: 3, draining: false, connected: true, untrue_reports: 0, ..executor };
    assert_eq!(executor_line(&executor), "executor: a connected, window 4, 1 started, 2 buffered, 3 overdue");
}

#[tokio::test(start_paused = true)]
async fn what_stands_in_the_way_is_named_with_what_waits_for_it() {
    let clock = Clock::start();
    tokio::time::advance(Duration::from_secs(60)).await;
    let at = |seconds| Time::from_origin(Duration::from_secs(seconds));
    let blocker = BlockerView {
        what: "forbidden: delete of pods in namespace a".to_owned(),
        items: 12,
        since: at(18),
        said: String::new(),
        next_probe: Some(at(63)),
        probing: false,
    };
    let line = "blocked: forbidden: delete of pods in namespace a, 12 items wait for 42 s, retried in 3 s";
    assert_eq!(blocker_line(&blocker, clock), line);
    let told = BlockerView { said: "forbidden: no rule".to_owned(), ..blocker.clone() };
    assert_eq!(blocker_line(&told, clock), format!("{line}; last answer: forbidden: no rule"));
    let probing = BlockerView { items: 1, probing: true, ..blocker };
    assert!(blocker_line(&probing, clock).ends_with(", 1 item waits for 42 s, tried now"));
    let what = "*.x.io".to_owned();
    let hidden = Unseen { what, why: "APIService v1.x.io is not available".to_owned(), since: at(18) };
    assert_eq!(
        hidden_line(&hidden),
        "undiscovered: *.x.io (APIService v1.x.io is not available), owners in deletion wait for it"
    );
}

#[test]
fn leadership_says_who_and_where() {
    let term = Some(Term { election: "lease".into(), number: 4 });
    let no_leader = Leadership::default();
    assert_eq!(leadership_line(&no_leader), "leadership: no known leader");
    let mut known = Leadership { term, holder: Some("b".to_owned()), ..no_leader };
    assert_eq!(leadership_line(&known), "leadership: b leads, term 4");
    known.endpoint = "10.0.0.1:7450".to_owned();
    assert_eq!(leadership_line(&known), "leadership: b leads at 10.0.0.1:7450, term 4");
    known.leading = true;
    assert_eq!(leadership_line(&known), "leadership: this replica leads, term 4");
}
