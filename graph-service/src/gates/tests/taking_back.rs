//! Instances take answers back.

use super::super::inbox::{FILTERS_MAX, TAKEN_BACK_EVERY};
use super::*;
use engine::scope::Objects;
use futures::FutureExt as _;

fn of(resource: &str) -> Objects {
    let resource = engine::object::GroupResource { group: "".into(), resource: resource.into() };
    Objects { resources: [resource].into(), ..Objects::default() }
}

/// The filters of the next event about answers that are taken back, if it has come.
fn taken_back(inbox: &Inbox) -> Option<Vec<Objects>> {
    let mut events = inbox.next().now_or_never()?.into_iter();
    events.find_map(|event| match event {
        Event::TakenBack { targets, .. } => Some(targets),
        other @ Event::PolicyChanged { .. } => panic!("{other:?}"),
        Event::Connected { .. } | Event::Answered(_) => None,
    })
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
