//! Sends each event to an HTTP receiver. `docs/design/sink.md` has the states of an event.
//!
//! * `outbox`: what is sent next
//! * `post`: one request

use super::keeping::{Bookmark, Letters, STORE_EVERY};
use super::record::{Record, lane};
use super::standing::Standing;
use super::stream::{Follow, Next};
use crate::kubectl::document::Schema;
use crate::kubectl::ending::{Problem, note};
use crate::kubectl::flags;
use crate::kubectl::session::Session;
use futures::stream::{self, Stream, StreamExt as _};
use outbox::{Attempt, Ended, Letter, Outbox};
use post::{Answer, Post};
use proto::decision::v1beta1::Position;
use runtime::shutdown::Shutdown;
use runtime::tasks::{JobEnd, Jobs};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout};
use uuid::Uuid;

mod outbox;
mod post;
#[cfg(test)]
mod tests;

/// Maximum time from the request to stop to the end of requests that are in flight.
const STOP_WITHIN: Duration = Duration::from_secs(10);

/// A message of the stream.
#[derive(Debug, Default)]
struct Arrival {
    letters: Vec<Letter>,
    /// Lost events, as a document.
    gap: Option<Value>,
    /// Everything up to this position has arrived.
    position: Option<Position>,
    /// The newest event of the log.
    head: u64,
}

/// The receiver, and where its dead letters go.
#[derive(Debug)]
pub(super) struct Sink {
    post: Post,
    letters: Letters,
    standing: Arc<Standing>,
    in_flight: usize,
    retry_for: Duration,
}

/// The stored and the shown state.
#[derive(Debug)]
struct Rest {
    bookmark: Bookmark,
    letters: Letters,
    standing: Arc<Standing>,
}

impl Sink {
    /// Checks the flags and opens the files. Sends nothing yet.
    pub(super) async fn open(flags: &flags::Sink, url: &str, standing: Arc<Standing>) -> Result<Sink, Problem> {
        let post = Post::open(flags, url).await?;
        let letters = Letters::open(flags.dead_letters.as_deref()).await?;
        let (in_flight, retry_for) = (usize::from(flags.sink_in_flight), flags.sink_retry_for);
        Ok(Sink { post, letters, standing, in_flight, retry_for })
    }

    /// Sends events until `stop` is requested.
    pub(super) async fn run(
        self,
        session: Session,
        follow: Follow,
        bookmark: Bookmark,
        stop: &Shutdown,
    ) -> Result<(), Problem> {
        let Sink { post, letters, standing, in_flight, retry_for } = self;
        let (seed, _) = Uuid::new_v4().as_u64_pair();
        let outbox = Outbox::new(bookmark.stored().cloned(), retry_for, seed);
        let arrivals = Box::pin(arrivals(session, follow, Schema::load()?));
        let send = move |body| post.clone().send(body);
        deliver(arrivals, outbox, Rest { bookmark, letters, standing }, in_flight, send, stop).await
    }
}

/// The messages of the stream. Unlike [`Follow::next`] itself, its `next` may be dropped.
fn arrivals(session: Session, follow: Follow, schema: Schema) -> impl Stream<Item = Result<Arrival, Problem>> {
    stream::unfold((session, follow, schema), |(mut session, mut follow, schema)| async {
        let next = follow.next(&mut session, true).await;
        let arrival = next.and_then(|next| arrival(next, &follow, &schema));
        Some((arrival, (session, follow, schema)))
    })
}

fn arrival(next: Next, follow: &Follow, schema: &Schema) -> Result<Arrival, Problem> {
    let mut arrival = Arrival { position: follow.position(), head: follow.head(), ..Arrival::default() };
    let Next::Records(records) = next else { return Ok(arrival) };
    for record in records {
        let item = record.item(schema)?;
        match &record {
            Record::Cloud(event) => arrival.letters.push(Letter {
                key: lane(event),
                body: item.to_string().into(),
                position: record.position(),
            }),
            Record::Event(_) | Record::Gap(_) => arrival.gap = Some(item),
        }
    }
    Ok(arrival)
}

/// Sends what arrives, at most `in_flight` requests at a time.
async fn deliver<F>(
    mut arrivals: impl Stream<Item = Result<Arrival, Problem>> + Unpin,
    mut outbox: Outbox,
    mut rest: Rest,
    in_flight: usize,
    send: impl Fn(bytes::Bytes) -> F,
    stop: &Shutdown,
) -> Result<(), Problem>
where
    F: Future<Output = Answer> + Send + 'static,
{
    let mut jobs: Jobs<Attempt, Answer> = Jobs::new(in_flight);
    let mut seconds = interval(STORE_EVERY);
    seconds.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut head = 0;
    loop {
        while jobs.has_room()
            && let Some(delivery) = outbox.next(Instant::now())
        {
            jobs.spawn(delivery.attempt, send(delivery.body));
        }
        rest.look(&outbox, jobs.len(), head);
        let due = outbox.deadline().filter(|_| jobs.has_room());
        tokio::select! {
            biased;
            () = stop.requested() => break,
            _ = seconds.tick() => rest.store(outbox.settled()).await,
            (attempt, end) = jobs.next() => rest.ended(&mut outbox, attempt, end).await?,
            () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {}
            arrival = arrivals.next(), if outbox.has_room() => {
                let Some(arrival) = arrival.transpose()? else { break };
                rest.standing.heard();
                head = arrival.head;
                arrival.letters.into_iter().for_each(|letter| outbox.take(letter));
                outbox.advance(arrival.position);
                if let Some(gap) = arrival.gap {
                    rest.gap(&gap).await;
                }
            }
        }
    }
    let finished = async {
        while !jobs.is_empty() {
            let (attempt, end) = jobs.next().await;
            rest.ended(&mut outbox, attempt, end).await?;
        }
        Ok(())
    };
    // The next run repeats an event whose answer does not come in time.
    let finished = timeout(STOP_WITHIN, finished).await.unwrap_or(Ok(()));
    rest.store(outbox.settled()).await;
    if let Some(at) = outbox.settled() {
        note(&format!("continue with: --after {}:{}", at.log_id, at.sequence));
    }
    finished
}

impl Rest {
    async fn ended(&mut self, outbox: &mut Outbox, attempt: Attempt, end: JobEnd<Answer>) -> Result<(), Problem> {
        let answer = match end {
            JobEnd::Done(answer) => answer,
            JobEnd::Aborted => return Ok(()),
            JobEnd::Panicked(why) => {
                return Err(Problem::sentence(format!("a request to the receiver panicked: {why}")));
            }
        };
        if let Answer::Again { why, everyone: true, .. } = &answer {
            if self.standing.refused(why) {
                note(&format!("the receiver takes nothing, and is asked again: {why}"));
            }
        } else if self.standing.answered() {
            note("the receiver answers again");
        }
        match outbox.ended(attempt, answer, Instant::now()) {
            Ended::Delivered => {
                self.standing.counts.delivered.inc();
            }
            Ended::Again => {
                self.standing.counts.retried.inc();
            }
            Ended::Dead(letter, why) => {
                self.standing.counts.dead_letters.inc();
                let body = String::from_utf8_lossy(&letter.body).into_owned();
                self.bury("event", &body, &why).await;
            }
        }
        Ok(())
    }

    async fn gap(&mut self, gap: &Value) {
        self.standing.counts.gaps.inc();
        self.bury("gap", &gap["gap"].to_string(), "the log has lost these events").await;
    }

    async fn bury(&mut self, what: &str, document: &str, why: &str) {
        let time = prost_types::Timestamp::from(SystemTime::now()).to_string();
        let line = format!("{{\"time\":{},\"reason\":{},\"{what}\":{document}}}\n", json!(time), json!(why));
        self.standing.wrote(self.letters.put(&line).await);
    }

    /// Stores the position, after the dead letters before it.
    async fn store(&mut self, at: Option<&Position>) {
        self.standing.turned();
        let stored = match self.letters.sync().await {
            Ok(()) => self.bookmark.store(at).await,
            Err(why) => Err(why),
        };
        self.standing.wrote(stored);
    }

    fn look(&self, outbox: &Outbox, in_flight: usize, head: u64) {
        let counts = &self.standing.counts;
        let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        counts.in_flight.set(number(in_flight));
        counts.unsettled.set(number(outbox.len()));
        let lag = outbox.settled().map_or(0, |at| head.saturating_sub(at.sequence));
        counts.lag.set(i64::try_from(lag).unwrap_or(i64::MAX));
    }
}
