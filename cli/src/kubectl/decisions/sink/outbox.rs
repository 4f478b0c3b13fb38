//! Which event is sent next: the order of each object, delays, and the position up to which all events are settled. It
//! does no I/O, and time is an argument.

use super::post::Answer;
use bytes::Bytes;
use engine::jitter::{Backoff, Rng};
use proto::decision::v1beta1::Position;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;
use tokio::time::Instant;

/// Bounds of the events in memory. Reading stops when one of them is reached. One message of the stream fits on top.
const EVENTS_MAX: usize = 4096;
const BYTES_MAX: usize = 32 << 20;
/// Bounds of the delay before an event is sent again.
const AGAIN_AFTER_MIN: Duration = Duration::from_millis(500);
const AGAIN_AFTER_MAX: Duration = Duration::from_secs(30);
/// Maximum delay that a receiver may ask for.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(600);

/// An event that waits for its delivery.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::kubectl::decisions) struct Letter {
    /// Events with the same key are delivered in order.
    pub(in crate::kubectl::decisions) key: String,
    /// The CloudEvent as JSON.
    pub(in crate::kubectl::decisions) body: Bytes,
    /// `None` for an open decision, which has no position in the log.
    pub(in crate::kubectl::decisions) position: Option<Position>,
}

/// A request to make.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Delivery {
    pub(super) attempt: Attempt,
    pub(super) body: Bytes,
}

/// A request that is made.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Attempt {
    key: String,
    began: Instant,
}

/// The consequence of an answer.
#[derive(Debug, PartialEq)]
pub(super) enum Ended {
    Delivered,
    Again,
    /// The event, and the reason why it is a dead letter.
    Dead(Letter, String),
}

/// All events that are not settled.
#[derive(Debug)]
pub(super) struct Outbox {
    /// Maximum time from the first attempt of an event to its last one.
    retry_for: Duration,
    /// By key. Looked up and never listed.
    lanes: HashMap<String, Lane>,
    /// The keys of lanes whose first event may be sent.
    ready: VecDeque<String>,
    /// The keys of lanes whose first event is sent again, by time and ticket.
    waiting: BTreeMap<(Instant, u64), String>,
    /// The position before each event that is not settled, by ticket.
    unsettled: BTreeMap<u64, Option<Position>>,
    /// The position up to which everything was read.
    read: Option<Position>,
    next_ticket: u64,
    bytes: usize,
    /// Nothing is sent before this instant, because the receiver takes nothing.
    shut_until: Option<Instant>,
    shut_for: Backoff,
    jitter: Rng,
}

/// The events of one key. The first one is in flight, ready or waiting.
#[derive(Debug, Default)]
struct Lane {
    letters: VecDeque<(u64, Letter)>,
    /// The first attempt of the first event.
    since: Option<Instant>,
    again_after: Option<Backoff>,
}

impl Outbox {
    /// Creates an empty outbox of a reader that begins after `read`.
    pub(super) fn new(read: Option<Position>, retry_for: Duration, seed: u64) -> Outbox {
        let mut jitter = Rng::new(seed);
        Outbox {
            retry_for,
            lanes: HashMap::new(),
            ready: VecDeque::new(),
            waiting: BTreeMap::new(),
            unsettled: BTreeMap::new(),
            read,
            next_ticket: 0,
            bytes: 0,
            shut_until: None,
            shut_for: Backoff::new(AGAIN_AFTER_MIN, AGAIN_AFTER_MAX, jitter.next()),
            jitter,
        }
    }

    pub(super) fn has_room(&self) -> bool {
        self.unsettled.len() < EVENTS_MAX && self.bytes < BYTES_MAX
    }

    /// The number of events that are not settled.
    pub(super) fn len(&self) -> usize {
        self.unsettled.len()
    }

    /// The position up to which all events are settled.
    pub(super) fn settled(&self) -> Option<&Position> {
        self.unsettled.first_key_value().map_or(self.read.as_ref(), |(_, before)| before.as_ref())
    }

    /// Takes the next event of the log.
    pub(super) fn take(&mut self, letter: Letter) {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.unsettled.insert(ticket, self.read.clone());
        self.advance(letter.position.clone());
        self.bytes += letter.body.len();
        let lane = self.lanes.entry(letter.key.clone()).or_default();
        if lane.letters.is_empty() {
            self.ready.push_back(letter.key.clone());
        }
        lane.letters.push_back((ticket, letter));
    }

    /// Everything up to this position was read.
    pub(super) fn advance(&mut self, to: Option<Position>) {
        self.read = to.or(self.read.take());
    }

    /// The next request, if there is one now.
    pub(super) fn next(&mut self, now: Instant) -> Option<Delivery> {
        if self.shut_until.is_some_and(|until| now < until) {
            return None;
        }
        while let Some(due) = self.waiting.first_entry().filter(|due| due.key().0 <= now) {
            self.ready.push_back(due.remove());
        }
        let key = self.ready.pop_front()?;
        let lane = self.lanes.get_mut(&key).expect("a ready lane has an event");
        lane.since.get_or_insert(now);
        let (_, letter) = lane.letters.front().expect("a lane without events is removed");
        Some(Delivery { body: letter.body.clone(), attempt: Attempt { key, began: now } })
    }

    /// The instant from which [`Outbox::next`] has a request again, if it has none now and no answer comes.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let ready = self.shut_until.filter(|_| !self.ready.is_empty());
        let due =
            self.waiting.first_key_value().map(|((at, _), _)| self.shut_until.map_or(*at, |until| until.max(*at)));
        ready.into_iter().chain(due).min()
    }

    /// Takes the answer to a request.
    pub(super) fn ended(&mut self, attempt: Attempt, answer: Answer, now: Instant) -> Ended {
        let Attempt { key, began } = attempt;
        let (why, after, everyone) = match answer {
            Answer::Accepted => {
                self.shut_for.reset();
                self.settle(key);
                return Ended::Delivered;
            }
            Answer::Refused(why) => {
                self.shut_for.reset();
                return Ended::Dead(self.settle(key), why);
            }
            Answer::Again { why, after, everyone } => (why, after, everyone),
        };
        let after = after.map(|after| after.min(RETRY_AFTER_MAX));
        if everyone {
            self.shut(began, after, now);
        } else {
            self.shut_for.reset();
        }
        let lane = self.lanes.get_mut(&key).expect("a lane whose event is in flight has it");
        let again_after = &mut lane.again_after;
        let at = match self.shut_until.filter(|_| everyone) {
            Some(until) => until,
            None => {
                let seed = self.jitter.next();
                let again = again_after.get_or_insert_with(|| Backoff::new(AGAIN_AFTER_MIN, AGAIN_AFTER_MAX, seed));
                now + again.next_delay()
            }
        };
        if at > lane.since.unwrap_or(began) + self.retry_for {
            return Ended::Dead(self.settle(key), format!("not delivered within --sink-retry-for: {why}"));
        }
        let (ticket, _) = lane.letters.front().expect("the event in flight is the first one");
        self.waiting.insert((at, *ticket), key);
        Ended::Again
    }

    /// Sends nothing for a while. Requests that began before the last pause say nothing new, unless they say for how
    /// long.
    fn shut(&mut self, began: Instant, after: Option<Duration>, now: Instant) {
        let until = match (after, self.shut_until) {
            (Some(after), _) => now + after,
            (None, Some(until)) if began < until => until,
            (None, _) => now + self.shut_for.next_delay(),
        };
        self.shut_until = self.shut_until.max(Some(until));
    }

    fn settle(&mut self, key: String) -> Letter {
        let lane = self.lanes.get_mut(&key).expect("a lane whose event is in flight has it");
        let (ticket, letter) = lane.letters.pop_front().expect("the event in flight is the first one");
        (lane.since, lane.again_after) = (None, None);
        if lane.letters.is_empty() {
            self.lanes.remove(&key);
        } else {
            self.ready.push_back(key);
        }
        self.unsettled.remove(&ticket);
        self.bytes -= letter.body.len();
        letter
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn at(sequence: u64) -> Position {
        Position { log_id: "log".into(), sequence }
    }

    fn letter(key: &str, sequence: u64) -> Letter {
        Letter { key: key.into(), body: Bytes::from(format!("log/{sequence}")), position: Some(at(sequence)) }
    }

    fn outbox(letters: &[(&str, u64)]) -> Outbox {
        let mut outbox = Outbox::new(Some(at(0)), HOUR, 1);
        letters.iter().for_each(|(key, sequence)| outbox.take(letter(key, *sequence)));
        outbox
    }

    fn again(after: Option<u64>, everyone: bool) -> Answer {
        Answer::Again { why: "busy".into(), after: after.map(Duration::from_secs), everyone }
    }

    #[test]
    fn one_event_of_an_object_is_in_flight_and_the_position_waits_for_the_oldest() {
        let now = Instant::now();
        let mut outbox = outbox(&[("a", 1), ("a", 2), ("b", 3)]);
        let [first, other] = [(); 2].map(|()| outbox.next(now).unwrap());
        assert_eq!((&first.body[..], &other.body[..]), (&b"log/1"[..], &b"log/3"[..]));
        assert_eq!((outbox.next(now), outbox.deadline()), (None, None));
        assert_eq!(outbox.ended(other.attempt, Answer::Accepted, now), Ended::Delivered);
        assert_eq!(outbox.settled(), Some(&at(0)), "1 is not settled, although 3 is");
        assert_eq!(outbox.ended(first.attempt, Answer::Accepted, now), Ended::Delivered);
        assert_eq!(outbox.settled(), Some(&at(1)));
        let second = outbox.next(now).unwrap();
        assert_eq!(&second.body[..], b"log/2");
        let dead = outbox.ended(second.attempt, Answer::Refused("400".into()), now);
        assert_eq!(dead, Ended::Dead(letter("a", 2), "400".into()));
        assert_eq!((outbox.settled(), outbox.len(), outbox.bytes), (Some(&at(3)), 0, 0));
        outbox.advance(Some(at(9)));
        outbox.advance(None);
        assert_eq!(outbox.settled(), Some(&at(9)), "events that filters leave out count as settled");
    }

    #[test]
    fn an_event_that_waits_holds_its_object_alone() {
        let now = Instant::now();
        let mut outbox = outbox(&[("a", 1), ("a", 2), ("b", 3), ("b", 4)]);
        let first = outbox.next(now).unwrap();
        assert_eq!(outbox.ended(first.attempt, again(None, false), now), Ended::Again);
        for expected in ["log/3", "log/4"] {
            let next = outbox.next(now).unwrap();
            assert_eq!(&next.body[..], expected.as_bytes());
            outbox.ended(next.attempt, Answer::Accepted, now);
        }
        assert_eq!(outbox.next(now), None);
        let due = outbox.deadline().unwrap();
        assert!((AGAIN_AFTER_MIN / 2..=AGAIN_AFTER_MIN).contains(&(due - now)), "{:?}", due - now);
        assert_eq!(&outbox.next(due).unwrap().body[..], b"log/1");
        assert_eq!(outbox.settled(), Some(&at(0)));
    }

    #[test]
    fn a_receiver_that_asks_for_time_gets_it_for_all_objects_and_not_for_ever() {
        for (asked, given) in [(7, 7), (1_000_000, RETRY_AFTER_MAX.as_secs())] {
            let now = Instant::now();
            let mut outbox = outbox(&[("a", 1), ("b", 2), ("c", 3)]);
            let [first, second] = [(); 2].map(|()| outbox.next(now).unwrap());
            assert_eq!(outbox.ended(first.attempt, again(Some(asked), true), now), Ended::Again);
            let opens = now + Duration::from_secs(given);
            assert_eq!((outbox.next(now), outbox.deadline()), (None, Some(opens)));
            // This request began before, so it adds no delay of its own.
            assert_eq!(outbox.ended(second.attempt, again(None, true), now), Ended::Again);
            assert_eq!((outbox.next(opens - AGAIN_AFTER_MIN), outbox.deadline()), (None, Some(opens)));
            let sent: Vec<Bytes> = std::iter::from_fn(|| outbox.next(opens)).map(|next| next.body).collect();
            assert_eq!(sent.len(), 3, "{sent:?}");
        }
    }

    #[test]
    fn pauses_grow_while_nothing_is_taken_and_begin_again_after_a_success() {
        let mut now = Instant::now();
        let mut outbox = outbox(&[("a", 1), ("a", 2)]);
        let pause = |outbox: &mut Outbox, now: &mut Instant| {
            let next = outbox.next(*now).unwrap();
            assert_eq!(outbox.ended(next.attempt, again(None, true), *now), Ended::Again);
            let pause = outbox.deadline().unwrap() - *now;
            *now += pause;
            pause
        };
        let pauses: Vec<Duration> = (0..10).map(|_| pause(&mut outbox, &mut now)).collect();
        assert!(pauses[0] <= AGAIN_AFTER_MIN && pauses[9] >= AGAIN_AFTER_MAX / 2, "{pauses:?}");
        assert!(pauses.iter().all(|pause| *pause <= AGAIN_AFTER_MAX), "{pauses:?}");
        let next = outbox.next(now).unwrap();
        outbox.ended(next.attempt, Answer::Accepted, now);
        assert!(pause(&mut outbox, &mut now) <= AGAIN_AFTER_MIN);
    }

    #[test]
    fn an_event_that_is_not_taken_in_time_is_a_dead_letter_and_the_next_one_has_its_own_time() {
        let mut now = Instant::now();
        let began = now;
        let mut outbox = outbox(&[("a", 1), ("a", 2)]);
        let dead = loop {
            let next = outbox.next(now).unwrap();
            match outbox.ended(next.attempt, again(None, false), now) {
                Ended::Again => now = outbox.deadline().unwrap(),
                dead @ (Ended::Delivered | Ended::Dead(..)) => break dead,
            }
        };
        let Ended::Dead(letter, why) = dead else { panic!("{dead:?}") };
        assert_eq!((&letter.body[..], why.as_str()), (&b"log/1"[..], "not delivered within --sink-retry-for: busy"));
        assert!(now - began > HOUR - AGAIN_AFTER_MAX && now - began <= HOUR, "{:?}", now - began);
        let next = outbox.next(now).unwrap();
        assert_eq!(outbox.ended(next.attempt, again(None, false), now), Ended::Again);
    }

    #[test]
    fn the_memory_has_a_bound() {
        let mut outbox = outbox(&[]);
        for sequence in 1..=EVENTS_MAX as u64 {
            assert!(outbox.has_room());
            outbox.take(letter("a", sequence));
        }
        assert!(!outbox.has_room());
        let mut large = Outbox::new(None, HOUR, 1);
        large.take(Letter { body: Bytes::from(vec![0; BYTES_MAX]), ..letter("a", 1) });
        assert!(!large.has_room());
        let next = large.next(Instant::now()).unwrap();
        large.ended(next.attempt, Answer::Accepted, Instant::now());
        assert!(large.has_room());
    }
}
