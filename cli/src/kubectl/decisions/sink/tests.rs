//! The loop of the sink on a paused clock, with a receiver that is a function.

use super::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio::time::sleep;
use tokio_stream::wrappers::UnboundedReceiverStream;

const HOUR: Duration = Duration::from_secs(3600);
const OBJECTS: u64 = 20;
const EVENTS: u64 = 400;

fn at(sequence: u64) -> Position {
    Position { log_id: "log".into(), sequence }
}

/// The event of this number. Events of one object are a multiple of [`OBJECTS`] apart.
fn letter(sequence: u64) -> Letter {
    let key = format!("object-{}", sequence % OBJECTS);
    let body = json!({ "id": format!("log/{sequence}"), "sequence": sequence }).to_string();
    Letter { key, body: body.into(), position: Some(at(sequence)) }
}

fn arrival(of: std::ops::RangeInclusive<u64>) -> Result<Arrival, Problem> {
    let position = Some(at(*of.end()));
    Ok(Arrival { letters: of.map(letter).collect(), gap: None, position, head: EVENTS })
}

/// The requests that a receiver saw.
#[derive(Debug, Default)]
struct Seen {
    attempts: BTreeMap<u64, u32>,
    in_flight: BTreeSet<u64>,
    most_in_flight: usize,
    accepted: Vec<u64>,
}

type Receiver = Arc<Mutex<Seen>>;

/// Answers after `takes`. The answer depends on the number of the event, and of its attempt.
async fn receive(seen: Receiver, body: bytes::Bytes, takes: Duration, answer: fn(u64, u32) -> Answer) -> Answer {
    let body: Value = serde_json::from_slice(&body).unwrap();
    let number = body["sequence"].as_u64().unwrap();
    let object = number % OBJECTS;
    let attempt = {
        let mut seen = seen.lock().unwrap();
        assert!(seen.in_flight.insert(object), "two events of object {object} are in flight");
        seen.most_in_flight = seen.most_in_flight.max(seen.in_flight.len());
        let attempts = seen.attempts.entry(number).or_default();
        *attempts += 1;
        *attempts
    };
    sleep(takes).await;
    let answer = answer(number, attempt);
    let mut seen = seen.lock().unwrap();
    seen.in_flight.remove(&object);
    if answer == Answer::Accepted {
        seen.accepted.push(number);
    }
    answer
}

fn again(after: Option<Duration>, everyone: bool) -> Answer {
    Answer::Again { why: "503".into(), after, everyone }
}

/// The files of a sink.
struct Files(TempDir);

impl Files {
    fn new() -> Files {
        Files(tempfile::tempdir().unwrap())
    }

    async fn rest(&self) -> Rest {
        Rest {
            bookmark: Bookmark::open(Some(&self.0.path().join("position"))).await.unwrap(),
            letters: Letters::open(Some(&self.0.path().join("letters"))).await.unwrap(),
            standing: Standing::new(true),
        }
    }

    fn position(&self) -> Option<u64> {
        let text = std::fs::read_to_string(self.0.path().join("position")).ok()?;
        text.trim().strip_prefix("log:")?.parse().ok()
    }

    fn letters(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.0.path().join("letters")).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

fn in_order(accepted: &[u64]) {
    let mut last = BTreeMap::new();
    for number in accepted {
        let before = last.insert(number % OBJECTS, *number);
        assert!(before.is_none_or(|before| before < *number), "{before:?} came before {number}: {accepted:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn every_event_arrives_in_the_order_of_its_object_or_is_a_dead_letter() {
    let (files, seen, stop) = (Files::new(), Receiver::default(), Shutdown::new());
    let rest = files.rest().await;
    let standing = Arc::clone(&rest.standing);
    let (messages, stream) = mpsc::unbounded_channel();
    for first in (1..EVENTS).step_by(50) {
        messages.send(arrival(first..=first + 49)).unwrap();
    }
    let receiver = Arc::clone(&seen);
    let send = move |body| {
        receive(Arc::clone(&receiver), body, Duration::from_millis(20), |number, attempt| match (number, attempt) {
            (13, _) => Answer::Refused("400 Bad Request".into()),
            (14, _) => again(None, false),
            (number, 1) if number % 7 == 0 => again(None, false),
            (number, 1) if number % 90 == 0 => again(Some(Duration::from_secs(5)), true),
            (number, 1 | 2) if number % 50 == 1 => again(None, true),
            _ => Answer::Accepted,
        })
    };
    let outbox = Outbox::new(Some(at(0)), HOUR, 1);
    let end = async {
        // Event 14 is a dead letter after an hour. Its object's next events follow then.
        let began = Instant::now();
        while standing.counts.delivered.get() + standing.counts.dead_letters.get() < EVENTS {
            assert!(began.elapsed() < HOUR * 2, "{:?}", seen.lock().unwrap());
            sleep(Duration::from_secs(1)).await;
        }
        stop.request();
    };
    let stream = UnboundedReceiverStream::new(stream);
    let (ended, ()) = tokio::join!(deliver(stream, outbox, rest, 8, send, &stop), end);
    ended.unwrap();
    drop(messages);
    let seen = seen.lock().unwrap();
    in_order(&seen.accepted);
    let accepted: BTreeSet<u64> = seen.accepted.iter().copied().collect();
    let missing: Vec<u64> = (1..=EVENTS).filter(|number| !accepted.contains(number)).collect();
    assert_eq!((missing, seen.accepted.len()), (vec![13, 14], accepted.len()));
    assert_eq!(seen.most_in_flight, 8, "objects are served side by side");
    let letters = files.letters();
    let reasons: Vec<(&str, &str)> = letters
        .iter()
        .map(|letter| (letter["event"]["id"].as_str().unwrap(), letter["reason"].as_str().unwrap()))
        .collect();
    assert_eq!(reasons, [("log/13", "400 Bad Request"), ("log/14", "not delivered within --sink-retry-for: 503")]);
    assert_eq!(files.position(), Some(EVENTS));
    assert!(standing.counts.retried.get() > 50, "{}", standing.counts.retried.get());
    assert_eq!((standing.counts.lag.get(), standing.counts.unsettled.get()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_receiver_that_is_down_stops_the_reader_and_is_not_flooded() {
    let (files, seen, stop) = (Files::new(), Receiver::default(), Shutdown::new());
    let rest = files.rest().await;
    let standing = Arc::clone(&rest.standing);
    let read = Arc::new(Mutex::new(0));
    let reading = Arc::clone(&read);
    let endless = stream::unfold(1, move |first| {
        *reading.lock().unwrap() = first;
        std::future::ready(Some((arrival(first..=first + 49), first + 50)))
    });
    let receiver = Arc::clone(&seen);
    let send = move |body| receive(Arc::clone(&receiver), body, Duration::ZERO, |_, _| again(None, true));
    let outbox = Outbox::new(Some(at(0)), Duration::from_secs(86_400), 1);
    let end = async {
        sleep(HOUR).await;
        stop.request();
    };
    let (ended, ()) = tokio::join!(deliver(endless, outbox, rest, 8, send, &stop), end);
    ended.unwrap();
    let attempts: u32 = seen.lock().unwrap().attempts.values().sum();
    let pauses = HOUR.as_secs() / 15;
    assert!(u64::from(attempts) <= 8 * (pauses + 20), "{attempts} requests in an hour");
    let read = *read.lock().unwrap();
    assert!((4000..4300).contains(&read), "{read} events were read");
    assert_eq!((standing.counts.dead_letters.get(), files.position()), (0, Some(0)));
    let readiness = runtime::admin::Probe::readyz(&*standing);
    assert!(!readiness.ready && readiness.lines[2].contains("503"), "{readiness:?}");
}

#[tokio::test(start_paused = true)]
async fn a_gap_is_a_dead_letter_and_open_decisions_do_not_move_the_position() {
    let (files, seen, stop) = (Files::new(), Receiver::default(), Shutdown::new());
    let rest = files.rest().await;
    let (messages, stream) = mpsc::unbounded_channel();
    messages.send(arrival(1..=5)).unwrap();
    let gap = json!({ "kind": "DecisionGap", "gap": { "reason": "COMPACTED" } });
    messages.send(Ok(Arrival { gap: Some(gap), position: Some(at(5)), ..Arrival::default() })).unwrap();
    let open = Letter { position: None, ..letter(6) };
    messages.send(Ok(Arrival { letters: vec![open], position: Some(at(5)), ..Arrival::default() })).unwrap();
    let receiver = Arc::clone(&seen);
    let send = move |body| receive(Arc::clone(&receiver), body, Duration::ZERO, |_, _| Answer::Accepted);
    let end = async {
        sleep(Duration::from_secs(5)).await;
        assert_eq!(files.position(), Some(5));
        messages.send(Ok(Arrival { position: Some(at(90)), ..Arrival::default() })).unwrap();
        sleep(Duration::from_secs(5)).await;
        stop.request();
    };
    let outbox = Outbox::new(Some(at(0)), HOUR, 1);
    let stream = UnboundedReceiverStream::new(stream);
    let (ended, ()) = tokio::join!(deliver(stream, outbox, rest, 8, send, &stop), end);
    ended.unwrap();
    assert_eq!(seen.lock().unwrap().accepted.len(), 6);
    let [letter] = &files.letters()[..] else { panic!("{:?}", files.letters()) };
    assert_eq!((&letter["gap"]["reason"], &letter["event"]), (&json!("COMPACTED"), &Value::Null));
    assert_eq!(files.position(), Some(90));
}

#[tokio::test(start_paused = true)]
async fn what_is_in_flight_at_the_end_is_awaited_or_repeated_by_the_next_run() {
    for (takes, stored) in [(STOP_WITHIN / 2, 1), (STOP_WITHIN * 2, 0)] {
        let (files, seen, stop) = (Files::new(), Receiver::default(), Shutdown::new());
        let rest = files.rest().await;
        let receiver = Arc::clone(&seen);
        let send = move |body| receive(Arc::clone(&receiver), body, takes, |_, _| Answer::Accepted);
        let end = async {
            sleep(Duration::from_millis(10)).await;
            stop.request();
        };
        let outbox = Outbox::new(Some(at(0)), HOUR, 1);
        let arrivals = stream::iter([arrival(1..=1)]).chain(stream::pending());
        let (ended, ()) = tokio::join!(deliver(arrivals, outbox, rest, 8, send, &stop), end);
        ended.unwrap();
        assert_eq!(files.position(), Some(stored), "{takes:?}");
    }
}
