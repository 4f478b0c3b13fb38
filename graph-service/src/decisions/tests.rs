use super::archive::Archived;
use super::kept::Begin;
use super::*;
use engine::leader::{Event, Grounds};
use engine::object::{ObjectRef, Uid};
use engine::time::Time;
use engine::work::{ActionKind, Term};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use proto::convert;
use proto::decision::v1beta1::Phase;
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
    Event::Withdrawn { item: 1, target, action: ActionKind::Delete, replaced: false, grounds: Grounds::unknown(7) }
}

fn most(events: usize) -> Most {
    Most { events, bytes: usize::MAX }
}

fn at(sequence: u64) -> Position {
    Position { log_id: "election.1".to_owned(), sequence }
}

fn filled(events_max: usize, events: usize) -> (DecisionLog, Writer) {
    let log = DecisionLog { events_max, ..DecisionLog::in_memory() };
    let mut writer = Writer::new(&log);
    writer.note(&Event::TermGained(term(1)), clock());
    for event in 1..=events {
        writer.note(&withdrawn(&event.to_string()), clock());
    }
    writer.publish();
    (log, writer)
}

fn names(tail: Result<Tail, Missing>) -> Vec<(u64, String)> {
    let Ok(Tail::Events(events)) = tail else { panic!("no events: {tail:?}") };
    let name = |logged: Logged| (logged.sequence, logged.decode("election.1").target.unwrap().name);
    events.into_iter().map(name).collect()
}

#[tokio::test]
async fn positions_are_dense_from_one_on_and_reading_goes_on_where_it_stopped() {
    let (log, mut writer) = filled(100, 3);
    let named = |numbers: &[u64]| numbers.iter().map(|number| (*number, number.to_string())).collect::<Vec<_>>();
    assert_eq!(names(log.after(&at(0), most(2)).await), named(&[1, 2]));
    assert_eq!(names(log.after(&at(2), most(2)).await), named(&[3]));
    assert_eq!(names(log.after(&at(3), most(2)).await), []);

    writer.note(&withdrawn("4"), clock());
    assert_eq!(names(log.after(&at(3), most(2)).await), [], "a round shows what it did at its end");
    writer.publish();
    assert_eq!(names(log.after(&at(3), most(2)).await), named(&[4]));
}

#[tokio::test]
async fn what_was_trimmed_is_a_loss_and_never_a_jump() {
    let (log, _writer) = filled(2, 5);
    let extent = Extent { log_id: "election.1".to_owned(), oldest: 4, in_memory: 4, newest: 5 };
    assert_eq!(log.extent(), Some(extent.clone()));
    for lost in 0..3 {
        let Err(Missing::Compacted(told)) = log.after(&at(lost), most(10)).await else {
            panic!("{lost} is not told as lost")
        };
        assert_eq!(told, extent);
    }
    assert_eq!(names(log.after(&at(3), most(10)).await).len(), 2);
}

#[tokio::test]
async fn a_position_of_another_log_or_of_none_is_told_from_one_that_is_lost() {
    let (log, mut writer) = filled(10, 3);
    let replaced = async |position: &Position| matches!(log.after(position, most(10)).await, Err(Missing::Replaced));
    assert!(replaced(&Position { log_id: "election.2".to_owned(), sequence: 1 }).await);
    assert!(replaced(&at(4)).await, "a position that was never given out");

    writer.note(&Event::TermLost, clock());
    writer.note(&withdrawn("after"), clock());
    writer.publish();
    assert!(replaced(&at(3)).await && log.extent().is_none());

    writer.note(&Event::TermGained(term(2)), clock());
    writer.publish();
    assert!(replaced(&at(3)).await);
    assert_eq!(log.extent(), Some(Extent { log_id: "election.2".to_owned(), oldest: 1, in_memory: 1, newest: 0 }));
}

#[tokio::test]
async fn an_event_tells_what_it_is_of() {
    let (log, _writer) = filled(10, 1);
    let Ok(Tail::Events(events)) = log.after(&at(0), most(1)).await else { panic!("no events") };
    let event = events[0].decode("election.1");
    assert_eq!(event.position, Some(at(1)));
    assert_eq!(event.phase(), Phase::Superseded);
    assert_eq!(event.term.as_ref().unwrap().number, 1);
}

/// A stream with this much content.
#[derive(Debug)]
struct Stream {
    first: u64,
    losses: Vec<u64>,
    is_away: bool,
}

impl Archive for Stream {
    fn read<'a>(&'a self, log_id: &'a str, from: u64, max: Most) -> BoxFuture<'a, Result<Archived, String>> {
        assert_eq!(log_id, "stream.1");
        let Stream { first, losses, is_away } = self;
        let records = (from..).take(max.events).filter(|sequence| sequence >= first);
        let records = records.map(|sequence| record(sequence, losses.contains(&sequence).then_some(1))).collect();
        let read = if *is_away { Err("away".to_owned()) } else { Ok(Archived { first: *first, records }) };
        async move { read }.boxed()
    }
}

/// An event whose time and decision follow from its sequence, or a loss of this many events.
fn record(sequence: u64, lost: Option<u64>) -> Record {
    match lost {
        Some(lost) => Record::Loss(Gap { lost, ..Gap::default() }.encode_to_vec().into()),
        None => {
            let decision_id = sequence.to_string();
            let event = DecisionEvent { decision_id, event_time: Some(seconds(sequence)), ..DecisionEvent::default() };
            Record::Event(event.encode_to_vec().into())
        }
    }
}

fn seconds(seconds: u64) -> prost_types::Timestamp {
    prost_types::Timestamp { seconds: seconds.try_into().unwrap(), nanos: 0 }
}

/// A mirror with the last ten of this many events in memory. Its log is `stream.1`.
pub(crate) fn mirror_of_many(events: u64) -> DecisionLog {
    let begin = Begin { oldest: events - 9, first: Some(1), shown_from: events };
    mirror_of(Stream { first: 1, losses: Vec::new(), is_away: false }, begin, &[], events)
}

/// A mirror of a stream that begins at `first`: events, and losses.
fn mirror_of(stream: Stream, begin: Begin, losses: &[(u64, u64)], newest: u64) -> DecisionLog {
    let log = DecisionLog::mirror(Arc::new(stream), Arc::new(Queue::new(false)));
    log.change(|kept| {
        kept.begin("stream.1".to_owned(), begin);
        for sequence in begin.oldest..=newest {
            let lost = losses.iter().find(|(at, _)| *at == sequence).map(|(_, lost)| *lost);
            kept.push(record(sequence, lost), EVENTS_MAX);
        }
    });
    log
}

/// A mirror with the whole stream in memory.
fn mirrored(oldest: u64, shown_from: u64, losses: &[(u64, u64)], newest: u64) -> DecisionLog {
    let stream = Stream { first: oldest, losses: Vec::new(), is_away: true };
    mirror_of(stream, Begin { oldest, first: Some(oldest), shown_from }, losses, newest)
}

fn in_stream(sequence: u64) -> Position {
    Position { log_id: "stream.1".to_owned(), sequence }
}

fn events(tail: Result<Tail, Missing>) -> Vec<DecisionEvent> {
    let Ok(Tail::Events(events)) = tail else { panic!("no events: {tail:?}") };
    events.iter().map(|logged| logged.decode("stream.1")).collect()
}

fn sequences(events: Vec<DecisionEvent>) -> Vec<u64> {
    events.into_iter().map(|event| event.position.unwrap().sequence).collect()
}

#[tokio::test]
async fn a_loss_has_a_position_and_is_told_before_what_comes_after_it() {
    let log = mirrored(10, 10, &[(12, 7)], 14);
    assert_eq!(sequences(events(log.after(&in_stream(9), most(10)).await)), [10, 11]);
    let Ok(Tail::Lost(gap)) = log.after(&in_stream(11), most(10)).await else { panic!("no loss") };
    assert_eq!((gap.first_missing, gap.next, gap.lost), (Some(in_stream(12)), Some(in_stream(13)), 7));
    assert_eq!(sequences(events(log.after(&in_stream(12), most(10)).await)), [13, 14]);
    assert_eq!(sequences(log.among(&in_stream(9), 4).await.unwrap().collect()), [10, 11, 13], "a list passes over it");
}

/// Positions from 11 on are in memory; the stream is said to begin with 3.
fn partly(stream: Stream) -> DecisionLog {
    mirror_of(stream, Begin { oldest: 11, first: Some(3), shown_from: 11 }, &[], 20)
}

#[tokio::test]
async fn what_is_not_in_memory_any_more_is_read_from_the_stream() {
    let log = partly(Stream { first: 3, losses: vec![7], is_away: false });
    let extent = log.extent().unwrap();
    assert_eq!((extent.oldest, extent.in_memory, extent.newest), (3, 11, 20));
    assert_eq!(sequences(events(log.after(&in_stream(2), most(3)).await)), [3, 4, 5]);
    assert_eq!(sequences(events(log.after(&in_stream(5), most(10)).await)), [6]);
    let Ok(Tail::Lost(gap)) = log.after(&in_stream(6), most(10)).await else { panic!("no loss") };
    assert_eq!((gap.first_missing, gap.next), (Some(in_stream(7)), Some(in_stream(8))));
    assert_eq!(sequences(events(log.after(&in_stream(9), most(100)).await)), (10..=20).collect::<Vec<_>>());
    assert_eq!(sequences(log.among(&in_stream(5), 4).await.unwrap().collect()), [6, 8, 9]);
    assert!(matches!(log.after(&in_stream(1), most(10)).await, Err(Missing::Compacted(now)) if now == extent));
}

#[tokio::test]
async fn what_the_stream_does_not_keep_any_more_is_told_as_such_and_nothing_is_said_while_it_is_away() {
    let log = partly(Stream { first: 8, losses: Vec::new(), is_away: false });
    assert!(matches!(log.after(&in_stream(5), most(10)).await, Err(Missing::Compacted(now)) if now.oldest == 8));
    assert_eq!(log.extent().unwrap().oldest, 8);
    assert_eq!(sequences(events(log.after(&in_stream(7), most(3)).await)), [8, 9, 10]);

    let log = partly(Stream { first: 3, losses: Vec::new(), is_away: true });
    assert!(matches!(log.after(&in_stream(5), most(10)).await, Err(Missing::Unreadable(why)) if why == "away"));
    assert_eq!(sequences(events(log.after(&in_stream(10), most(2)).await)), [11, 12]);
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
    assert_eq!(sequences(events(log.after(&in_stream(5), most(10)).await)), Vec::<u64>::new());
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

#[tokio::test]
async fn a_time_is_found_in_memory_and_in_the_stream() {
    let stream = Stream { first: 3, losses: vec![3, 7, 8], is_away: false };
    let log = mirror_of(stream, Begin { oldest: 11, first: Some(3), shown_from: 11 }, &[(14, 1)], 20);
    let extent = log.extent().unwrap();
    for wanted in 0..25 {
        let found = log.before(&seconds(wanted), &extent).await.unwrap();
        // An event without a time is never passed over, so the reader gets the loss before it.
        let expected = match wanted {
            0..=4 => 2,
            8 | 9 => 6,
            15 => 13,
            21.. => 20,
            _ => wanted - 1,
        };
        assert!(found.sequence <= expected && found.sequence + 3 > expected, "{wanted}: {found:?}");
        assert!(
            (found.sequence + 1..wanted.min(21)).all(|between| [3, 7, 8, 14].contains(&between)),
            "{wanted}: {found:?}"
        );
    }
}

#[tokio::test]
async fn what_is_kept_in_memory_is_bounded_in_bytes() {
    let log = DecisionLog::in_memory();
    let large = Record::Event(vec![0; 256 * 1024].into());
    log.change(|kept| {
        kept.begin("log".to_owned(), Begin::default());
        (0..300).for_each(|_| kept.push(large.clone(), EVENTS_MAX));
    });
    let size = log.size();
    assert_eq!((size.events, size.bytes), (256, 64 * 1024 * 1024));
}
