//! Writes the queue to the shared log.
//!
//! Many messages are on their way at once. Each names the sequence that it has to come after, so that none is written out of order, twice,
//! or behind one of a later leader. Whatever goes wrong, the end of the log is read again, and it says what is still to be written.

use super::entry::{Entry, Name};
use super::queue::Queue;
use futures::future::BoxFuture;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep, sleep_until, timeout};

#[cfg(test)]
mod tests;

/// Messages on their way.
const WINDOW: usize = 256;
/// A log that does not answer for so long is away.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);
/// Between two attempts to reach it.
const RETRY_AFTER: Duration = Duration::from_millis(250);
/// How often a log that nothing is written to is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// So many attempts in a row that wrote nothing are no accident: where the log ends may have been known too long ago, once.
const FRUITLESS_MAX: u32 = 3;

/// Where the log ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tip {
    pub(super) sequence: u64,
    /// The last message, if it is kept and is one of ours.
    pub(super) name: Option<Name>,
}

/// Why a message was not written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// It is larger than the log takes.
    TooLarge(String),
    Other(String),
}

/// The sequence that a message was given.
pub(super) type Receipt = BoxFuture<'static, Result<u64, Failure>>;

/// The log, as the publisher sees it.
pub(super) trait Store: Send + Sync {
    /// Where it ends. It is created where there is none.
    fn tip(&self) -> BoxFuture<'_, Result<Tip, String>>;

    /// Sends a message that is to be written only if the log ends at `after`, and with that message, where it has a name. Messages arrive in
    /// the order in which they were sent.
    fn append(&self, after: Tip, entry: Entry) -> BoxFuture<'_, Result<Receipt, Failure>>;

    /// Why there is no connection, where there is none.
    fn broken(&self) -> Option<String>;
}

/// Runs for ever.
pub(super) async fn run(store: impl Store, queue: Arc<Queue>) -> anyhow::Result<()> {
    let mut fruitless = 0;
    loop {
        let answer = timeout(ANSWER_WITHIN, store.tip()).await;
        let tip = match answer.unwrap_or_else(|_| Err(format!("it did not answer in {ANSWER_WITHIN:?}"))) {
            Ok(tip) => tip,
            Err(why) => {
                queue.away(&why);
                sleep(RETRY_AFTER).await;
                continue;
            }
        };
        queue.resume(tip.name.as_ref());
        let (failure, written) = write(&store, &queue, tip).await;
        match failure {
            Failure::TooLarge(why) => {
                if !queue.shorten_first(&why) {
                    queue.away(&format!("it does not take what is left of an event: {why}"));
                    sleep(RETRY_AFTER).await;
                }
            }
            Failure::Other(why) => {
                fruitless = if written > 0 { 0 } else { fruitless + 1 };
                tracing::debug!(why, written, fruitless, "writing the log of decisions begins anew");
                if fruitless >= FRUITLESS_MAX {
                    queue.away(&why);
                    sleep(RETRY_AFTER).await;
                }
            }
        }
    }
}

/// Until something goes wrong: what that was, and how many were written.
async fn write(store: &impl Store, queue: &Queue, mut tip: Tip) -> (Failure, usize) {
    let mut sent: VecDeque<(Receipt, Instant)> = VecDeque::new();
    let mut added = queue.added();
    let mut written = 0;
    // A sequence says nothing of who has written it: where another leader has taken the place of one message that is on its way, the next
    // would fit behind. So each of them names the one before it. The first rests on what was just read.
    let mut last = Tip { sequence: tip.sequence, name: None };
    loop {
        added.mark_unchanged();
        while sent.len() < WINDOW
            && let Some(entry) = queue.send(sent.len())
        {
            let name = entry.name.clone();
            match store.append(last.clone(), entry).await {
                Ok(receipt) => {
                    sent.push_back((receipt, Instant::now() + ANSWER_WITHIN));
                    last = Tip { sequence: last.sequence + 1, name: Some(name) };
                }
                // The others are answered first: only the first in the queue can be shortened.
                Err(Failure::TooLarge(_)) if !sent.is_empty() => break,
                Err(failure) => return (failure, written),
            }
        }
        let has_room = sent.len() < WINDOW;
        let look_at = sent.front().map_or_else(|| Instant::now() + LOOK_EVERY, |(_, until)| *until);
        let first = async {
            match sent.front_mut() {
                Some((receipt, _)) => receipt.await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            receipt = first => match receipt {
                Ok(sequence) if sequence == tip.sequence + 1 => {
                    sent.pop_front();
                    tip.sequence = sequence;
                    written += 1;
                    queue.written();
                }
                Ok(sequence) => {
                    let why = format!("a message that was to become {} is {sequence}", tip.sequence + 1);
                    return (Failure::Other(why), written);
                }
                Err(failure) => return (failure, written),
            },
            _ = added.changed(), if has_room => {}
            () = sleep_until(look_at) => {
                if let Some(why) = store.broken() {
                    return (Failure::Other(why), written);
                }
                if !sent.is_empty() {
                    return (Failure::Other(format!("it did not acknowledge in {ANSWER_WITHIN:?}")), written);
                }
            }
        }
    }
}
