use super::*;
use prost::Message as _;
use prost::bytes::Bytes;

fn term(number: u64) -> Term {
    Term { election: "election".into(), number }
}

fn begin(term: Term) -> Step {
    Step::Begin(term, prost_types::Timestamp::default())
}

fn event(seconds: i64) -> Step {
    let time = Some(prost_types::Timestamp { seconds, nanos: 0 });
    Step::Event(Noted { event: Bytes::from(vec![7; 10]), time })
}

fn events(seconds: std::ops::Range<i64>) -> impl Iterator<Item = Step> {
    seconds.map(event)
}

fn name(term_number: u64, number: u64) -> Name {
    Name { term: term(term_number), number }
}

/// A queue for ten events, in the first term.
fn queue() -> Queue {
    let queue = Queue::bounded(10, false);
    queue.take([begin(term(1))].into_iter());
    queue.reads_end();
    queue
}

/// The waiting entries: numbers of events, and losses with their count and last number.
fn shown(queue: &Queue) -> Vec<String> {
    let describe = |place: &Place| match &place.entry.what {
        What::Event(_) | What::Stub(_) => place.entry.name.number.to_string(),
        What::Loss(loss) => format!("{} lost up to {}", loss.events, place.entry.name.number),
    };
    queue.waiting().places.iter().map(describe).collect()
}

#[test]
fn what_finds_the_queue_full_is_one_loss_in_its_place_until_there_is_room_for_a_while() {
    let queue = queue();
    queue.take(events(1..14));
    assert_eq!(shown(&queue).last().unwrap(), "3 lost up to 13");
    for _ in 0..4 {
        queue.written();
    }
    queue.take(events(14..16));
    assert_eq!(shown(&queue), ["5", "6", "7", "8", "9", "10", "5 lost up to 15"], "not as soon as there is room");
    for _ in 0..3 {
        queue.written();
    }
    queue.take(events(16..18));
    assert_eq!(shown(&queue), ["8", "9", "10", "5 lost up to 15", "16", "17"]);
    let Entry { what: What::Loss(loss), .. } = queue.send(3).unwrap() else { panic!("no loss") };
    let at = |seconds: i64| Some(prost_types::Timestamp { seconds, nanos: 0 });
    assert_eq!(loss, Loss { events: 5, since: at(11), until: at(15) });
    assert_eq!(queue.progress().borrow().lost, 5);
}

#[test]
fn a_loss_that_may_have_been_written_is_not_changed_any_more() {
    let queue = queue();
    queue.take(events(1..13));
    assert!(queue.send(10).is_some());
    queue.take(events(13..14));
    assert_eq!(shown(&queue)[10..], ["2 lost up to 12", "1 lost up to 13"]);
}

#[test]
fn what_the_log_ends_with_has_been_written_and_the_rest_has_not() {
    let queue = queue();
    queue.take(events(1..6));
    (0..5).for_each(|at| assert!(queue.send(at).is_some()));
    queue.resume(Some(&name(1, 3)));
    assert_eq!((shown(&queue), queue.progress().borrow().settled), (vec!["4".to_owned(), "5".to_owned()], 3));
    queue.resume(Some(&name(1, 3)));
    assert_eq!(shown(&queue), ["4", "5"]);
    queue.resume(None);
    assert_eq!(shown(&queue), ["4", "5"], "a log that is empty, or of which the end is not kept");
}

#[test]
fn what_is_of_a_term_before_that_of_the_logs_end_is_lost_and_never_counts_as_written() {
    let queue = queue();
    queue.take(events(1..3));
    queue.take([Step::End, begin(term(3))].into_iter().chain(events(3..4)));
    queue.resume(Some(&name(2, 9)));
    assert_eq!(shown(&queue), ["1"]);
    let progress = queue.progress().borrow().clone();
    assert_eq!((progress.lost, progress.settled), (2, 0));
    queue.written();
    assert_eq!(queue.progress().borrow().settled, 3);

    // Decisions of a leader that does not know its successor yet are lost, too.
    queue.resume(Some(&name(4, 1)));
    queue.take(events(4..6));
    assert_eq!((shown(&queue), queue.progress().borrow().lost), (vec![], 4));
    queue.take([Step::End, begin(term(5))].into_iter().chain(events(6..7)));
    assert_eq!(shown(&queue), ["1"]);
}

#[test]
fn a_leader_in_a_term_that_another_process_has_used_or_passed_writes_nothing_and_must_end_its_term() {
    for of_the_log in [name(7, 9), name(4, 9)] {
        let queue = Queue::bounded(10, false);
        let mut reached = queue.reached();
        queue.take([begin(term(4))].into_iter().chain(events(1..3)));
        assert!(queue.send(0).is_none(), "not before the end of the log is known");
        queue.reads_end();
        queue.resume(Some(&of_the_log));
        queue.take(events(3..4));
        assert_eq!((shown(&queue), queue.progress().borrow().settled), (vec![], 0));
        assert_eq!(queue.progress().borrow().lost, 3);
        assert_eq!(*reached.borrow_and_update(), Some(of_the_log.term.clone()));
        queue.take([Step::End, begin(term(of_the_log.term.number + 1))].into_iter().chain(events(4..5)));
        queue.reads_end();
        queue.resume(Some(&of_the_log));
        assert_eq!((shown(&queue), queue.send(0).is_some()), (vec!["1".to_owned()], true));
        assert!(!reached.has_changed().unwrap(), "once");
    }
}

#[test]
fn a_term_that_goes_on_after_an_interruption_goes_on_counting() {
    let queue = queue();
    queue.take(events(1..3).chain([Step::End]));
    queue.take(events(3..4));
    queue.take([begin(term(1))].into_iter().chain(events(4..5)));
    assert_eq!(shown(&queue), ["1", "2", "3"]);
    (0..3).for_each(|at| assert!(queue.send(at).is_some()));
    queue.resume(Some(&name(1, 3)));
    assert_eq!((shown(&queue), queue.reached().borrow().clone()), (vec![], None));
}

#[test]
fn of_two_elections_the_one_in_which_this_replica_leads_is_the_later() {
    let queue = queue();
    queue.take(events(1..3));
    let other = Name { term: Term { election: "other".into(), number: 9 }, number: 1 };
    queue.resume(Some(&other));
    assert_eq!(shown(&queue), ["1", "2"]);
    queue.take([Step::End].into_iter());
    queue.resume(Some(&other));
    assert_eq!(shown(&queue), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_log_is_connecting_then_away_then_catching_up_then_written_to() {
    let queue = Queue::bounded(32, true);
    queue.take([begin(term(1))].into_iter().chain(events(1..32)));
    let standing = |queue: &Queue| queue.progress().borrow().standing.clone();
    queue.away("refused");
    assert_eq!(standing(&queue), Standing::Connecting);
    tokio::time::sleep(CONNECT_WITHIN).await;
    queue.away("refused");
    assert!(matches!(standing(&queue), Standing::Away { why, .. } if why == "refused"));
    queue.resume(None);
    assert!(matches!(standing(&queue), Standing::Away { .. }), "nothing has been written yet");
    queue.written();
    assert_eq!(standing(&queue), Standing::CatchingUp);
    while queue.progress().borrow().waiting > 2 {
        assert_eq!(standing(&queue), Standing::CatchingUp);
        queue.written();
    }
    assert_eq!(standing(&queue), Standing::Writing);
    queue.take(events(0..15));
    assert_eq!(standing(&queue), Standing::CatchingUp, "more than half of it waits again");
}

#[tokio::test(start_paused = true)]
async fn while_the_log_is_away_less_may_wait_than_while_a_burst_is_being_written() {
    let queue = Queue { absence: Bound { events: 4, ..ABSENCE }, ..queue() };
    queue.take(events(1..7));
    assert_eq!(shown(&queue).len(), 6);
    tokio::time::sleep(CONNECT_WITHIN).await;
    queue.away("refused");
    queue.take(events(7..9));
    assert_eq!(shown(&queue)[6..], ["2 lost up to 8"]);
    queue.written();
    queue.written();
    queue.take(events(9..10));
    assert_eq!(shown(&queue)[4..], ["2 lost up to 8", "9"], "it is written to, and there is room");
}

#[test]
fn few_large_events_are_much_that_waits_as_well() {
    let queue = Queue { burst: Bound { bytes: 100, ..BURST }, ..Queue::new(false) };
    queue.take([begin(term(1))].into_iter());
    queue.written();
    queue.take(events(1..5));
    assert_eq!(queue.progress().borrow().standing, Standing::Writing);
    queue.take(events(5..7));
    assert_eq!(queue.progress().borrow().standing, Standing::CatchingUp);
}

#[test]
fn what_is_left_of_an_event_names_what_happened_to_what() {
    use proto::decision::v1beta1::{DecisionEvent, Phase};
    use proto::r#type::v1beta1::ObjectRef;
    let queue = queue();
    let event = DecisionEvent {
        decision_id: "7".to_owned(),
        phase: Phase::Leased.into(),
        target: Some(ObjectRef { uid: "uid-a".to_owned(), ..ObjectRef::default() }),
        owners: vec![Default::default(); 20],
        ..DecisionEvent::default()
    };
    queue.take([Step::Event(Noted { event: event.encode_to_vec().into(), time: None })].into_iter());
    assert!(queue.shorten_first("too large"));
    let left = DecisionEvent::decode(queue.send(0).unwrap().payload()).unwrap();
    assert!(left.truncated && left.owners.is_empty());
    assert_eq!((left.decision_id, left.phase, left.target), (event.decision_id, event.phase, event.target));
    let bytes = queue.waiting().bytes;
    assert_eq!(bytes, queue.send(0).unwrap().len());
}
