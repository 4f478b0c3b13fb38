use super::*;
use crate::decisions::DecisionLog;
use engine::leader::Grounds;
use engine::object::Uid;
use engine::time::Time;
use prometheus_client::registry::Registry;
use runtime::metrics::Book;

fn target() -> ObjectRef {
    ObjectRef {
        group: "".into(),
        version: "v1".into(),
        resource: "pods".into(),
        kind: "Pod".into(),
        namespace: "shop".into(),
        name: "a".into(),
        uid: Uid::parse("u").unwrap(),
    }
}

#[tokio::test(start_paused = true)]
async fn a_grant_is_no_progress_and_the_end_of_an_attempt_is() {
    let metrics = Metrics::register(&mut Book::new(&mut Registry::default()));
    let (clock, writer) = (Clock::start(), Writer::new(&DecisionLog::in_memory()));
    let mut render = Render::new(metrics.clone(), None, mpsc::channel(1).0, writer, clock);
    let grounds = || Grounds::unknown(7);
    let mut stalled_after = |event: Event| {
        render.event(&event);
        render.round(1, 0, Duration::ZERO);
        metrics.stalled(true, Some(Time::ZERO), clock).as_secs()
    };
    tokio::time::advance(Duration::from_secs(90)).await;
    let (action, executor) = (ActionKind::Delete, Name::from("executor"));
    let granted = Event::Granted {
        item: 1,
        target: target(),
        action,
        executor: executor.clone(),
        attempt: 1,
        grounds: grounds(),
    };
    assert_eq!(stalled_after(granted), 90);
    let end = AttemptEnd {
        target: target(),
        action,
        outcome: Outcome::Transient,
        executor,
        http_status: 503,
        message: String::new(),
        audit_id: String::new(),
        api_calls: 1,
        attempt: 1,
        grounds: grounds(),
    };
    assert_eq!(stalled_after(Event::Attempted { item: 1, age: Duration::ZERO, end }), 0);
    tokio::time::advance(Duration::from_secs(40)).await;
    let withdrawn = Event::Withdrawn { item: 1, target: target(), action, replaced: false, grounds: grounds() };
    assert_eq!(stalled_after(withdrawn), 0);
}
