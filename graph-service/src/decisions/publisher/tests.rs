//! The publisher on a log that loses messages and acknowledgements, and that other publishers write to.

use super::*;
use crate::decisions::entry::What;
use crate::decisions::entry::{Noted, Step};
use crate::decisions::queue::Standing;
use engine::work::Term;
use futures::FutureExt as _;
use prost::bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};
use tokio::sync::oneshot;

/// A connection to the log. Clones share both.
#[derive(Clone, Default)]
struct Log {
    stream: Arc<Mutex<Stream>>,
    faults: Arc<Mutex<Faults>>,
}

/// The log itself, and the messages in flight from all connections.
#[derive(Default)]
struct Stream {
    messages: Vec<Entry>,
    /// By time of arrival, then by order of sending.
    on_their_way: BTreeMap<(Instant, u64), Sent>,
    sent: u64,
}

struct Sent {
    after: Tip,
    entry: Entry,
    is_too_large: bool,
    answer: oneshot::Sender<Result<u64, Failure>>,
}

/// Of one connection.
#[derive(Default)]
struct Faults {
    away: bool,
    /// After this many messages, one is lost in either direction.
    lose_message_in: Option<usize>,
    lose_answer_in: Option<usize>,
    /// The log refuses this event as too large.
    too_large: Option<u64>,
    /// The log also refuses its short form.
    refuses_stubs: bool,
    random: u64,
    /// Arrival of the last message. No message overtakes another.
    arrival: Option<Instant>,
}

impl Faults {
    /// True about every `one_in`th time.
    fn now_and_then(&mut self, one_in: u64) -> bool {
        self.random != 0 && self.draw().is_multiple_of(one_in)
    }

    fn draw(&mut self) -> u64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.random >> 33
    }

    /// The arrival of a message that is sent now.
    fn arrival(&mut self) -> Instant {
        let takes = if self.random == 0 { 0 } else { self.draw() % 10 };
        let earliest = self.arrival.unwrap_or_else(Instant::now);
        let arrival = earliest.max(Instant::now() + Duration::from_millis(takes));
        self.arrival = Some(arrival);
        arrival
    }
}

fn is_due(counter: &mut Option<usize>) -> bool {
    match counter {
        Some(0) => {
            *counter = None;
            true
        }
        Some(left) => {
            *left -= 1;
            false
        }
        None => false,
    }
}

impl Stream {
    /// Handles all arrived messages, with or without a waiting sender.
    fn arrive(&mut self) {
        while let Some(first) = self.on_their_way.first_entry().filter(|first| first.key().0 <= Instant::now()) {
            let Sent { after, entry, is_too_large, answer } = first.remove();
            // The sender is gone if the publisher has restarted.
            let _given_up = answer.send(self.take(&after, entry, is_too_large));
        }
    }

    fn take(&mut self, after: &Tip, entry: Entry, is_too_large: bool) -> Result<u64, Failure> {
        if is_too_large {
            return Err(Failure::TooLarge("too large".to_owned()));
        }
        let sequence = self.messages.len() as u64;
        let last = self.messages.last().map(|entry| &entry.name);
        if after.sequence != sequence || after.name.is_some() && after.name.as_ref() != last {
            return Err(Failure::Other(format!("the log ends at {sequence} with {last:?}, and not with {after:?}")));
        }
        self.messages.push(entry);
        Ok(sequence + 1)
    }
}

impl Log {
    /// Another connection to the same log.
    fn of_another(&self) -> Log {
        Log { stream: Arc::clone(&self.stream), faults: Arc::default() }
    }

    fn stream(&self) -> MutexGuard<'_, Stream> {
        let mut stream = self.stream.lock().unwrap();
        stream.arrive();
        stream
    }

    fn faults(&self) -> MutexGuard<'_, Faults> {
        self.faults.lock().unwrap()
    }

    /// Term and number of each message; a loss with its number of events.
    fn written(&self) -> Vec<String> {
        let describe = |entry: &Entry| match &entry.what {
            What::Event(_) => format!("{}.{}", entry.name.term.number, entry.name.number),
            What::Stub(_) => format!("{}.{} in short", entry.name.term.number, entry.name.number),
            What::Loss(loss) => format!("{}.{} lost {}", entry.name.term.number, entry.name.number, loss.events),
        };
        self.stream().messages.iter().map(describe).collect()
    }

    /// The arrival and result of an answer; `None` if the message is lost.
    fn send(&self, after: Tip, entry: Entry) -> Option<(Instant, oneshot::Receiver<Result<u64, Failure>>)> {
        let mut faults = self.faults();
        if faults.away || is_due(&mut faults.lose_message_in) || faults.now_and_then(20) {
            return None;
        }
        let is_too_large = faults.too_large == Some(entry.name.number)
            && match entry.what {
                What::Event(_) => true,
                What::Stub(_) => faults.refuses_stubs,
                What::Loss(_) => false,
            };
        let (answer, answered) = oneshot::channel();
        let arrival = faults.arrival();
        let mut stream = self.stream();
        stream.sent += 1;
        let key = (arrival, stream.sent);
        stream.on_their_way.insert(key, Sent { after, entry, is_too_large, answer });
        let is_answered = !is_due(&mut faults.lose_answer_in) && !faults.now_and_then(20);
        is_answered.then_some((arrival, answered))
    }
}

impl Store for Log {
    fn tip(&self) -> BoxFuture<'_, Result<Tip, String>> {
        async move {
            if self.faults().away {
                std::future::pending::<()>().await;
            }
            let stream = self.stream();
            Ok(Tip {
                sequence: stream.messages.len() as u64,
                name: stream.messages.last().map(|entry| entry.name.clone()),
            })
        }
        .boxed()
    }

    fn append(&self, after: Tip, entry: Entry) -> BoxFuture<'_, Result<Receipt, Failure>> {
        let answer = self.send(after, entry);
        let log = self.clone();
        let receipt: Receipt = async move {
            let Some((arrival, answered)) = answer else { return std::future::pending().await };
            sleep_until(arrival).await;
            drop(log.stream());
            answered.await.expect("it has arrived")
        }
        .boxed();
        async move { Ok(receipt) }.boxed()
    }

    fn broken(&self) -> Option<String> {
        self.faults().away.then(|| "the connection is lost".to_owned())
    }
}

fn begin(term: u64) -> Step {
    let term = Term { election: "election".into(), number: term };
    Step::Begin(term, prost_types::Timestamp::default())
}

fn events(count: usize) -> impl Iterator<Item = Step> {
    (0..count).map(|_| Step::Event(Noted { event: Bytes::from_static(b"event"), time: None }))
}

/// Runs a publisher until the condition holds.
async fn publish_until(log: &Log, queue: &Arc<Queue>, wanted: impl FnMut(&crate::decisions::Progress) -> bool) {
    let mut progress = queue.progress();
    tokio::select! {
        _never = run(log.clone(), Arc::clone(queue)) => unreachable!("it runs for ever"),
        reached = progress.wait_for(wanted) => drop(reached.unwrap()),
    }
}

async fn publish_all(log: &Log, queue: &Arc<Queue>) {
    publish_until(log, queue, |progress| progress.waiting == 0).await;
}

fn numbered(term: u64, numbers: std::ops::RangeInclusive<u64>) -> Vec<String> {
    numbers.map(|number| format!("{term}.{number}")).collect()
}

#[tokio::test(start_paused = true)]
async fn every_event_is_written_once_and_in_order_whatever_gets_lost_on_the_way() {
    for seed in 1..=200 {
        let (log, queue) = (Log::default(), Arc::new(Queue::bounded(2000, true)));
        log.faults().random = seed;
        queue.take([begin(1)].into_iter().chain(events(600)));
        publish_all(&log, &queue).await;
        assert_eq!(log.written(), numbered(1, 1..=600), "seed {seed}");
        assert_eq!(queue.progress().borrow().settled, 600, "seed {seed}");
        assert_eq!(queue.progress().borrow().written, 600, "seed {seed}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_is_no_lost_message() {
    let (log, queue) = (Log::default(), Arc::new(Queue::bounded(100, false)));
    log.faults().lose_answer_in = Some(3);
    queue.take([begin(1)].into_iter().chain(events(10)));
    publish_all(&log, &queue).await;
    assert_eq!(log.written(), numbered(1, 1..=10));
}

#[tokio::test(start_paused = true)]
async fn a_leader_of_an_earlier_term_writes_nothing_behind_one_of_a_later() {
    for seed in 1..=100 {
        two_leaders(seed).await;
    }
}

async fn two_leaders(seed: u64) {
    let log = Log::default();
    let (first, second) = (Arc::new(Queue::bounded(2000, false)), Arc::new(Queue::bounded(2000, false)));
    log.faults().lose_message_in = Some(40);
    first.take([begin(1)].into_iter().chain(events(500)));
    publish_until(&log, &first, |progress| progress.settled >= 40).await;
    log.faults().random = seed;
    second.take([begin(2)].into_iter().chain(events(300)));

    // Messages of both are in flight, in any order.
    let other = log.of_another();
    other.faults().random = seed + 1000;
    let mut done = second.progress();
    let mut given_up = first.progress();
    tokio::select! {
        _never = run(log.clone(), Arc::clone(&first)) => unreachable!("it runs for ever"),
        _never = run(other, Arc::clone(&second)) => unreachable!("it runs for ever"),
        () = async {
            done.wait_for(|progress| progress.waiting == 0).await.unwrap();
            given_up.wait_for(|progress| progress.waiting == 0).await.unwrap();
        } => {}
    }
    let written = log.written();
    let later = written.iter().position(|name| name.starts_with("2.")).unwrap();
    assert_eq!(written[..later], numbered(1, 1..=later as u64), "seed {seed}");
    assert_eq!(written[later..], numbered(2, 1..=300), "seed {seed}");
    let progress = first.progress().borrow().clone();
    assert!(progress.settled <= later as u64, "seed {seed}: nothing may rest on the rest");
    assert_eq!(progress.lost, 500 - progress.settled, "seed {seed}: what is not known to be written counts as lost");
}

#[tokio::test(start_paused = true)]
async fn nothing_is_written_in_a_term_that_another_process_has_used_before_the_store_was_restored() {
    let (log, before, queue) =
        (Log::default(), Arc::new(Queue::bounded(100, true)), Arc::new(Queue::bounded(100, true)));
    let mut running = Box::pin(run(log.of_another(), Arc::clone(&queue)));
    // The publisher has read the end of the log before that term.
    assert!((&mut running).now_or_never().is_none());
    before.take([begin(7)].into_iter().chain(events(2)));
    publish_all(&log, &before).await;
    queue.take([begin(7)].into_iter().chain(events(5)));
    let mut reached = queue.reached();
    let term = Term { election: "election".into(), number: 7 };
    let is_known = async { reached.wait_for(|reached| reached.as_ref() == Some(&term)).await.map(drop).unwrap() };
    tokio::select! {
        _never = &mut running => unreachable!("it runs for ever"),
        () = is_known => {}
    }
    assert_eq!((log.written(), queue.progress().borrow().settled), (numbered(7, 1..=2), 0));
    queue.take([Step::End, begin(8)].into_iter().chain(events(1)));
    let mut progress = queue.progress();
    tokio::select! {
        _never = running => unreachable!("it runs for ever"),
        written = progress.wait_for(|progress| progress.written > 0) => drop(written.unwrap()),
    }
    assert_eq!(log.written(), ["7.1", "7.2", "8.1"]);
}

#[tokio::test(start_paused = true)]
async fn what_a_log_missed_while_it_was_away_is_one_loss_in_its_place() {
    let (log, queue) = (Log::default(), Arc::new(Queue::bounded(100, false)));
    queue.take([begin(1)].into_iter().chain(events(10)));
    publish_all(&log, &queue).await;
    log.faults().away = true;
    queue.take(events(1));
    publish_until(&log, &queue, |progress| matches!(progress.standing, Standing::Away { .. })).await;
    queue.take(events(500));
    log.faults().away = false;
    publish_all(&log, &queue).await;
    queue.take(events(5));
    publish_all(&log, &queue).await;
    let mut expected = numbered(1, 1..=110);
    expected.push("1.511 lost 401".to_owned());
    expected.extend(numbered(1, 512..=516));
    assert_eq!(log.written(), expected);
    assert_eq!(queue.progress().borrow().standing, Standing::Writing);
}

#[tokio::test(start_paused = true)]
async fn an_idle_log_that_goes_away_is_noticed_and_so_is_its_return() {
    let (log, queue) = (Log::default(), Arc::new(Queue::bounded(100, false)));
    publish_until(&log, &queue, |progress| progress.standing == Standing::Writing).await;
    log.faults().away = true;
    sleep(Duration::from_secs(2)).await;
    publish_until(&log, &queue, |progress| matches!(progress.standing, Standing::Away { .. })).await;
    log.faults().away = false;
    publish_until(&log, &queue, |progress| progress.standing == Standing::Writing).await;
}

#[tokio::test(start_paused = true)]
async fn an_event_that_the_log_does_not_take_whole_is_written_in_short() {
    for is_required in [false, true] {
        let (log, queue) = (Log::default(), Arc::new(Queue::bounded(1000, is_required)));
        log.faults().too_large = Some(5);
        queue.take([begin(1)].into_iter().chain(events(300)));
        publish_all(&log, &queue).await;
        let mut expected = numbered(1, 1..=300);
        expected[4] = "1.5 in short".to_owned();
        assert_eq!(log.written(), expected);
        assert_eq!(queue.progress().borrow().lost, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_refused_even_in_short_is_lost_unless_the_log_is_required() {
    let refusing = |is_required| {
        let (log, queue) = (Log::default(), Arc::new(Queue::bounded(1000, is_required)));
        *log.faults() = Faults { too_large: Some(5), refuses_stubs: true, ..Faults::default() };
        queue.take([begin(1)].into_iter().chain(events(300)));
        (log, queue)
    };
    let (log, queue) = refusing(false);
    publish_all(&log, &queue).await;
    let mut expected = numbered(1, 1..=300);
    expected[4] = "1.5 lost 1".to_owned();
    assert_eq!(log.written(), expected);
    assert_eq!(queue.progress().borrow().lost, 1);

    let (log, queue) = refusing(true);
    publish_until(&log, &queue, |progress| matches!(progress.standing, Standing::Away { .. })).await;
    let progress = queue.progress().borrow().clone();
    assert_eq!((progress.settled, progress.lost), (4, 0), "no grant may rest on it");
    assert!(matches!(progress.standing, Standing::Away { why, .. } if why.contains("too large")));
    // The server accepts it now.
    log.faults().refuses_stubs = false;
    publish_all(&log, &queue).await;
    assert_eq!(log.written()[4], "1.5 in short");
    assert_eq!(queue.progress().borrow().standing, Standing::Writing);
}
