use super::*;
use prometheus_client::registry::Registry;

fn metrics() -> (Metrics, Registry) {
    let mut registry = Registry::default();
    let metrics = Metrics::register(&mut Book::new(&mut registry));
    (metrics, registry)
}

#[test]
fn the_reason_is_the_cause_that_says_most() {
    let absent = Cause::OwnerAbsent {
        kind: "Deployment".into(),
        namespace: "a".into(),
        name: "b".into(),
        uid: engine::object::Uid::parse("u").unwrap(),
        proof: Proof::ReadTwice,
    };
    assert_eq!(Cause::most_specific(std::slice::from_ref(&absent)), "owner_absent");
    assert_eq!(Cause::most_specific(&[absent, Cause::Cycle]), "cycle");
    assert_eq!(Cause::most_specific(&[Cause::NoBlockingDependents]), "no_blocking_dependents");
}

#[test]
fn words_of_proofs_are_all_of_them() {
    let uid = engine::object::Uid::parse("u").unwrap();
    let version = engine::object::ResourceVersion::parse("1");
    let all = [
        Proof::WatchDeleted { resource_version: version.clone() },
        Proof::Listed { resource_version: version },
        Proof::TypeEmptied { crd: uid },
        Proof::ReadTwice,
    ];
    assert_eq!(all.map(|proof| proof.as_str()), Proof::WORDS);
}

#[tokio::test(start_paused = true)]
async fn what_is_ready_and_does_not_move_stands_still_and_nothing_else_does() {
    let (metrics, _registry) = metrics();
    let clock = Clock::start();
    let ready = Some(Time::from_origin(Duration::from_secs(10)));
    tokio::time::advance(Duration::from_secs(100)).await;
    assert_eq!(metrics.stalled(true, None, clock), Duration::ZERO, "a quiet cluster");
    assert_eq!(metrics.stalled(false, ready, clock), Duration::ZERO, "a replica that does not lead");
    assert_eq!(metrics.stalled(true, ready, clock).as_secs(), 90);
    metrics.moved(clock.now());
    tokio::time::advance(Duration::from_secs(7)).await;
    assert_eq!(metrics.stalled(true, ready, clock).as_secs(), 7, "others had their turn meanwhile");
}
