use super::*;
use engine::object::{ObjectRef, Uid};
use engine::time::Time;
use engine::work::ActionKind;
use proto::decision::v1alpha1::Phase;
use std::time::SystemTime;

fn term(number: u64) -> Term {
    Term { election: "election".into(), number }
}

fn clock() -> convert::Clock {
    convert::Clock { now: Time::ZERO, calendar: SystemTime::UNIX_EPOCH }
}

fn withdrawn(name: &str) -> Event {
    let target = ObjectRef {
        group: "".into(),
        version: "v1".into(),
        resource: "secrets".into(),
        kind: "Secret".into(),
        namespace: "shop".into(),
        name: name.into(),
        uid: Uid::parse(&format!("uid-{name}")).unwrap(),
    };
    Event::Withdrawn { item: 1, target, action: ActionKind::Delete, decision: 7 }
}

fn at(sequence: u64) -> Position {
    Position { log_id: "election.1".to_owned(), sequence }
}

fn filled(events_max: usize, events: usize) -> (DecisionLog, Writer) {
    let log = DecisionLog { events_max, ..DecisionLog::in_memory() };
    let mut writer = Writer::new(log.clone(), None);
    writer.note(&Event::TermGained(term(1)), clock());
    for event in 1..=events {
        writer.note(&withdrawn(&event.to_string()), clock());
    }
    writer.publish();
    (log, writer)
}

fn names(tail: Tail) -> Vec<(u64, String)> {
    let Tail::Events(events) = tail else { panic!("no events: {tail:?}") };
    let name = |event: DecisionEvent| (event.position.unwrap().sequence, event.target.unwrap().name);
    events.into_iter().map(name).collect()
}

#[test]
fn positions_are_dense_from_one_on_and_reading_goes_on_where_it_stopped() {
    let (log, mut writer) = filled(100, 3);
    let named = |numbers: &[u64]| numbers.iter().map(|number| (*number, number.to_string())).collect::<Vec<_>>();
    assert_eq!(names(log.after(&at(0), 2)), named(&[1, 2]));
    assert_eq!(names(log.after(&at(2), 2)), named(&[3]));
    assert_eq!(names(log.after(&at(3), 2)), []);

    writer.note(&withdrawn("4"), clock());
    assert_eq!(names(log.after(&at(3), 2)), [], "a round shows what it did at its end");
    writer.publish();
    assert_eq!(names(log.after(&at(3), 2)), named(&[4]));
}

#[test]
fn what_was_trimmed_is_a_loss_and_never_a_jump() {
    let (log, _writer) = filled(2, 5);
    let extent = Extent { log_id: "election.1".to_owned(), oldest: 4, newest: 5 };
    assert_eq!(log.extent(), Some(extent.clone()));
    for lost in 0..3 {
        let Tail::Compacted(told) = log.after(&at(lost), 10) else { panic!("{lost} is not told as lost") };
        assert_eq!(told, extent);
    }
    assert_eq!(names(log.after(&at(3), 10)).len(), 2);
}

#[test]
fn a_position_of_another_log_or_of_none_is_told_from_one_that_is_lost() {
    let (log, mut writer) = filled(10, 3);
    let replaced = |position: &Position| matches!(log.after(position, 10), Tail::Replaced);
    assert!(replaced(&Position { log_id: "election.2".to_owned(), sequence: 1 }));
    assert!(replaced(&at(4)), "a position that was never given out");

    writer.note(&Event::TermLost, clock());
    writer.note(&withdrawn("after"), clock());
    writer.publish();
    assert!(replaced(&at(3)) && log.extent().is_none());

    writer.note(&Event::TermGained(term(2)), clock());
    writer.publish();
    assert!(replaced(&at(3)));
    assert_eq!(log.extent(), Some(Extent { log_id: "election.2".to_owned(), oldest: 1, newest: 0 }));
}

#[test]
fn an_event_tells_what_it_is_of() {
    let (log, _writer) = filled(10, 1);
    let Tail::Events(events) = log.after(&at(0), 1) else { panic!("no events") };
    assert_eq!(events[0].phase(), Phase::Superseded);
    assert_eq!(events[0].term.as_ref().unwrap().number, 1);
}

/// What was read of a stream: events, and losses of so many.
fn mirrored(oldest: u64, shown_from: u64, losses: &[(u64, u64)], newest: u64) -> DecisionLog {
    let log = DecisionLog::mirror();
    log.change(|kept| {
        kept.begin("stream.1".to_owned(), oldest, shown_from);
        for sequence in oldest..=newest {
            let lost = losses.iter().find(|(at, _)| *at == sequence);
            let record = match lost {
                Some((_, lost)) => Record::Loss(Gap { lost: *lost, ..Gap::default() }.encode_to_vec().into()),
                None => Record::Event(DecisionEvent::default().encode_to_vec().into()),
            };
            kept.push(record, EVENTS_MAX);
        }
    });
    log
}

fn in_stream(sequence: u64) -> Position {
    Position { log_id: "stream.1".to_owned(), sequence }
}

fn sequences(tail: Tail) -> Vec<u64> {
    let Tail::Events(events) = tail else { panic!("no events: {tail:?}") };
    events.into_iter().map(|event| event.position.unwrap().sequence).collect()
}

#[test]
fn a_loss_has_a_position_and_is_told_before_what_comes_after_it() {
    let log = mirrored(10, 10, &[(12, 7)], 14);
    assert_eq!(sequences(log.after(&in_stream(9), 10)), [10, 11]);
    let Tail::Lost(gap) = log.after(&in_stream(11), 10) else { panic!("no loss") };
    assert_eq!((gap.first_missing, gap.next, gap.lost), (Some(in_stream(12)), Some(in_stream(13)), 7));
    assert_eq!(sequences(log.after(&in_stream(12), 10)), [13, 14]);
    assert_eq!(sequences(log.among(&in_stream(9), 4)), [10, 11, 13], "a list passes over it");
}

#[test]
fn a_mirror_is_not_shown_before_it_has_come_to_where_the_stream_ended() {
    assert_eq!(mirrored(1, 9, &[], 8).extent(), None);
    assert_eq!(mirrored(1, 9, &[], 9).extent().unwrap().newest, 9);
    let empty = mirrored(10, 9, &[], 9).extent().unwrap();
    assert_eq!((empty.oldest, empty.newest), (10, 9), "all of it was trimmed");
}

#[tokio::test(start_paused = true)]
async fn a_position_that_another_replica_has_read_first_is_waited_for() {
    let log = mirrored(1, 1, &[], 3);
    assert_eq!(log.reach(&in_stream(3)).await, Reached::Yes);
    assert_eq!(log.reach(&in_stream(5)).await, Reached::NotYet);
    assert_eq!(sequences(log.after(&in_stream(5), 10)), Vec::<u64>::new());
    let later = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        log.change(|kept| kept.push(Record::Loss(Bytes::new()), EVENTS_MAX));
    };
    let wanted = in_stream(4);
    assert_eq!(tokio::join!(log.reach(&wanted), later).0, Reached::Yes);
    let asked = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        log.change(|kept| kept.end = Some((Instant::now(), 4)));
    };
    let invented = in_stream(1_000_000);
    assert_eq!(tokio::join!(log.reach(&invented), asked).0, Reached::Never, "the stream itself ends before it");
    assert_eq!(log.reach(&Position { log_id: "stream.0".to_owned(), sequence: 1 }).await, Reached::Never);
}
