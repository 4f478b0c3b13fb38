use super::*;
use engine::object::GroupResource;
use engine::parity::AuditedVerb;
use prometheus_client::registry::Registry;
use runtime::metrics::Book;
use std::io::Write as _;

pub(super) fn inlet(room: usize) -> (Inlet, mpsc::Receiver<Input>) {
    let metrics = AuditMetrics::register(&mut Book::new(&mut Registry::default()));
    let (facts, inputs) = mpsc::channel(room);
    (Inlet::new("a test".to_owned(), facts, Arc::default(), metrics, Clock::start()), inputs)
}

/// Used, irrelevant and unreadable events.
pub(super) fn counts(inlet: &Inlet) -> [u64; 3] {
    let AuditMetrics { used, irrelevant, unreadable } = &inlet.metrics;
    [used.get(), irrelevant.get(), unreadable.get()]
}

pub(super) fn names(inputs: &mut mpsc::Receiver<Input>) -> Vec<String> {
    let name = |input| {
        let Input::Audited(audited) = input else { panic!("{input:?}") };
        audited.name.to_string()
    };
    std::iter::from_fn(|| inputs.try_recv().ok()).map(name).collect()
}

fn deleted(id: &str, name: &str) -> Audited {
    Audited {
        verb: AuditedVerb::Delete,
        collection: GroupResource { group: "".into(), resource: "pods".into() },
        namespace: "shop".into(),
        name: name.into(),
        uid: None,
        resource_version: None,
        at: Time::ZERO,
        user: "jane".into(),
        by_collector: false,
        status: 200,
        id: id.into(),
    }
}

fn batch(used: Vec<Audited>) -> Batch {
    let found = |audited| Found { audited, stage_time: None };
    Batch { used: used.into_iter().map(found).collect(), ..Batch::default() }
}

#[tokio::test]
async fn an_event_counts_once() {
    let (inlet, mut inputs) = inlet(8);
    inlet.send(batch(vec![deleted("1", "a"), deleted("1", "a"), deleted("2", "a")])).await.unwrap();
    let more = Audited { uid: engine::object::Uid::parse("u"), ..deleted("1", "a") };
    inlet.offer(batch(vec![more, deleted("1", "b")])).unwrap();
    assert_eq!(names(&mut inputs), ["a", "a", "b"], "a client may give two requests one audit id");
    assert_eq!(counts(&inlet), [3, 2, 0]);
}

#[test]
fn a_bounded_number_of_events_is_remembered() {
    let mut seen = Seen::default();
    let mut is_new = |number: usize| seen.is_new(&deleted(&number.to_string(), "a"));
    assert!((0..SEEN_MAX).all(&mut is_new));
    assert!(!is_new(0));
    assert!(is_new(SEEN_MAX));
    assert!(is_new(0), "forgotten");
    assert_eq!((seen.order.len(), seen.known.len()), (SEEN_MAX, SEEN_MAX));
}

#[tokio::test]
async fn a_full_queue_takes_all_events_of_an_offer_or_none() {
    let (inlet, mut inputs) = inlet(2);
    let three = || batch(vec![deleted("1", "a"), deleted("2", "b"), deleted("3", "c")]);
    assert_eq!(inlet.offer(three()), Err(NoRoom::Full));
    assert_eq!(counts(&inlet), [0, 0, 0], "the sender tries again");
    inlet.offer(batch(vec![deleted("1", "a"), deleted("1", "a")])).unwrap();
    inlet.offer(batch(vec![deleted("2", "b")])).unwrap();
    let waiting = inlet.send(three());
    tokio::pin!(waiting);
    assert!(futures::poll!(&mut waiting).is_pending(), "two are known, and the third one has no room");
    assert_eq!(names(&mut inputs), ["a", "b"]);
    waiting.await.unwrap();
    assert_eq!(names(&mut inputs), ["c"]);
    drop(inputs);
    assert_eq!(inlet.offer(batch(vec![deleted("4", "d")])), Err(NoRoom::Closed));
    assert_eq!(inlet.send(batch(vec![deleted("5", "e")])).await, Err(NoRoom::Closed));
}

#[tokio::test]
async fn a_followed_file_becomes_inputs() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit.log");
    let (inlet, mut inputs) = inlet(8);
    let metrics = inlet.metrics.clone();
    let event = |name: &str| {
        let kind = r#""kind":"Event","apiVersion":"audit.k8s.io/v1","stage":"ResponseComplete","verb":"delete""#;
        format!(r#"{{{kind},"auditID":"{name}","objectRef":{{"resource":"pods","name":"{name}"}}}}"#)
    };
    let mut follower = Follower::new(path.clone());
    assert!(follower.step().lines.is_empty(), "there is no file yet");
    let long = "x".repeat(2 * follower::LINE_MAX);
    std::fs::write(&path, format!("{}\n{long}\n{{}}\n{}\n", event("a"), event("b"))).unwrap();
    let story = async {
        let found = [inputs.recv().await, inputs.recv().await].map(|input| match input {
            Some(Input::Audited(audited)) => audited.name.to_string(),
            other => panic!("{other:?}"),
        });
        drop(inputs);
        let mut file = std::fs::File::options().append(true).open(&path).unwrap();
        writeln!(file, "{}", event("c")).unwrap();
        found
    };
    let (ended, found) = tokio::join!(follow(follower, inlet), story);
    ended.unwrap();
    assert_eq!(found, ["a", "b"]);
    assert_eq!(metrics.unreadable.get(), 2, "the long line, and the object without a kind");
}

#[test]
fn the_time_of_an_event_is_that_of_the_api_server() {
    let (inlet, _inputs) = inlet(1);
    let now = wire(inlet.clock);
    let at = |time: &str| inlet.time_of(time.parse().ok());
    assert_eq!(at("2020-01-01T00:00:00.000000Z"), Time::ZERO, "from before the process");
    for now_instead in ["2999-01-01T00:00:00Z", "", "yesterday"] {
        assert!(at(now_instead) >= now.now, "{now_instead}");
    }
}
