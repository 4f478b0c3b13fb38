//! Tests of the messages of instances besides answers: more time for a question, and answers that are void.

use super::super::inbox::{FILTERS_MAX, TAKEN_BACK_EVERY};
use super::*;
use engine::scope::Objects;
use futures::FutureExt as _;

const SECOND: Duration = Duration::from_secs(1);

fn of(resource: &str) -> Objects {
    let resource = engine::object::GroupResource { group: "".into(), resource: resource.into() };
    Objects { resources: [resource].into(), ..Objects::default() }
}

/// The filters of the next event about answers that are taken back, if it has come.
fn taken_back(inbox: &Inbox) -> Option<Vec<Objects>> {
    let mut events = inbox.next().now_or_never()?.into_iter();
    events.find_map(|event| match event {
        Event::TakenBack { targets, .. } => Some(targets),
        other @ (Event::PolicyChanged { .. } | Event::NeedsTime { .. }) => panic!("{other:?}"),
        Event::Connected { .. } | Event::Answered(_) => None,
    })
}

fn needs(inbox: &Inbox) -> Vec<(u64, Duration)> {
    let needs = inbox.take().into_iter().filter_map(|event| match event {
        Event::NeedsTime { number, extra, .. } => Some((number, extra)),
        Event::TakenBack { .. } | Event::PolicyChanged { .. } | Event::Connected { .. } | Event::Answered(_) => None,
    });
    needs.collect()
}

#[tokio::test(start_paused = true)]
async fn a_new_revision_or_an_empty_one_takes_answers_back() {
    let (router, inbox, _) = streamed();
    let policy_changed = |inbox: &Inbox| inbox.take().contains(&Event::PolicyChanged { gate: GATE.into() });
    let first = router.join(GATE, 0, "1").unwrap();
    assert!(!policy_changed(&inbox), "the first revision");
    let _second = router.join(GATE, 0, "2").unwrap();
    assert!(policy_changed(&inbox));
    first.take_back("2", Vec::new());
    assert_eq!(taken_back(&inbox), None, "the known revision");
    first.take_back("", vec![of("pods")]);
    assert_eq!(taken_back(&inbox), Some(vec![of("pods")]));
    tokio::time::advance(TAKEN_BACK_EVERY).await;
    first.take_back("3", Vec::new());
    assert_eq!(taken_back(&inbox), Some(Vec::new()));
    tokio::time::advance(TAKEN_BACK_EVERY).await;
    first.take_back("3", vec![of("pods")]);
    assert_eq!(taken_back(&inbox), None, "the revision of the message before");
}

#[tokio::test(start_paused = true)]
async fn answers_are_taken_back_once_a_second() {
    let (router, inbox, _) = streamed();
    let joined = router.join(GATE, 0, "").unwrap();
    joined.take_back("", vec![of("pods")]);
    assert_eq!(taken_back(&inbox), Some(vec![of("pods")]));
    joined.take_back("", vec![of("secrets")]);
    joined.take_back("", vec![of("nodes")]);
    assert_eq!(taken_back(&inbox), None);
    let begun = tokio::time::Instant::now();
    let events = inbox.next().await;
    assert_eq!(begun.elapsed(), TAKEN_BACK_EVERY);
    assert_eq!(events, [Event::TakenBack { gate: GATE.into(), targets: vec![of("secrets"), of("nodes")] }]);
    tokio::time::advance(2 * TAKEN_BACK_EVERY).await;
    for _ in 0..=FILTERS_MAX {
        joined.take_back("", vec![of("pods")]);
    }
    assert_eq!(taken_back(&inbox), Some(Vec::new()), "too many filters are all of them");
    tokio::time::advance(2 * TAKEN_BACK_EVERY).await;
    joined.take_back("", Vec::new());
    joined.take_back("", vec![of("pods")]);
    assert_eq!(taken_back(&inbox), Some(Vec::new()), "all of them have the pods");
}

#[tokio::test(start_paused = true)]
async fn a_question_gets_extra_time_once_and_keeps_it_when_it_moves() {
    let (router, inbox, metrics) = streamed();
    let first = router.join(GATE, 0, "").unwrap();
    (1..=2).for_each(|number| router.ask(question(number)));
    assert_eq!(asked(&first), [1, 2]);
    first.need_time(1, 3 * SECOND).unwrap();
    first.need_time(2, 3600 * SECOND).unwrap();
    first.need_time(1, 5 * SECOND).unwrap();
    assert_eq!(needs(&inbox), [(1, 3 * SECOND), (2, 3600 * SECOND)]);
    assert_eq!(metrics.count("twice"), 1);
    tokio::time::advance(SECOND).await;
    drop(first);
    let second = router.join(GATE, 0, "").unwrap();
    // The questions failed, because no instance was there.
    assert_eq!(asked(&second), [0; 0]);
    router.ask(question(3));
    assert_eq!(asked(&second), [3]);
    second.need_time(3, 3 * SECOND).unwrap();
    let third = router.join(GATE, 0, "").unwrap();
    tokio::time::advance(SECOND).await;
    drop(second);
    let Some(Out::Ask(questions)) = third.next().now_or_never() else { panic!("the question does not move") };
    assert_eq!(questions[0].1, 4 * SECOND, "two seconds and three more, less the one that has passed");
    inbox.take();
    third.need_time(3, 5 * SECOND).unwrap();
    assert_eq!(
        (needs(&inbox), metrics.count("twice")),
        (vec![], 1),
        "it has had its time, and the instance is not to blame"
    );
}

#[tokio::test(start_paused = true)]
async fn more_time_for_a_question_that_is_not_there_is_counted_like_an_answer() {
    let (router, inbox, metrics) = streamed();
    let joined = router.join(GATE, 0, "").unwrap();
    (1..=3).for_each(|number| router.ask(question(number)));
    assert_eq!(asked(&joined), [1, 2, 3]);
    router.cancel(&GATE.into(), &[2, 3]);
    assert!(matches!(joined.next().now_or_never(), Some(Out::Cancel(_))));
    allow(&joined, 1).unwrap();
    inbox.take();
    let counts = || [Unmatched::Late, Unmatched::Twice, Unmatched::Unknown].map(|cause| metrics.count(cause.as_str()));
    for (number, expected) in [(2, [1, 0, 0]), (2, [1, 1, 0]), (1, [1, 2, 0]), (99, [1, 2, 1])] {
        joined.need_time(number, SECOND).unwrap();
        assert_eq!(counts(), expected, "{number}");
    }
    allow(&joined, 2).unwrap();
    assert_eq!(counts(), [2, 2, 1], "the answer itself is late, and no repetition");
    assert_eq!(needs(&inbox), []);
    let refused = (0..=STRAYS_MAX).find(|_| joined.need_time(99, SECOND) == Err(Flood));
    assert_eq!(refused, Some(STRAYS_MAX - 3));
}
