//! Writes the queue to the shared log.
//!
//! Many messages are in flight at once. Each names the sequence that it must follow, so that none is written out of
//! order, twice, or after a message of a later leader. After any error the publisher reads the end of the log again,
//! which shows the messages that it must write again. It also reads the end before the first message of a term. If a
//! restored store shows the Lease of an earlier term, another process may have written in this term.

use super::entry::{Entry, Name};
use super::queue::Queue;
use futures::future::BoxFuture;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep, sleep_until, timeout};

#[cfg(test)]
mod tests;

/// Maximum number of messages in flight.
const WINDOW: usize = 256;
/// Maximum time for an answer. After it the log counts as unreachable.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);
/// Wait between two attempts to connect.
const RETRY_AFTER: Duration = Duration::from_millis(250);
/// Interval between checks of an idle log.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Number of consecutive attempts that wrote nothing after which the publisher reads the end of the log again, because
/// the known end may be outdated.
const FRUITLESS_MAX: u32 = 3;

/// The end of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tip {
    pub(super) sequence: u64,
    /// The last message, if it still exists and Ownergraph wrote it.
    pub(super) name: Option<Name>,
}

/// Why a message was not written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// The message is larger than the log accepts.
    TooLarge(String),
    Other(String),
}

/// The sequence that the log gave a message.
pub(super) type Receipt = BoxFuture<'static, Result<u64, Failure>>;

/// The log as the publisher sees it.
pub(super) trait Store: Send + Sync {
    /// The end of the log. Creates the log if it does not exist.
    fn tip(&self) -> BoxFuture<'_, Result<Tip, String>>;

    /// Sends a message. The log writes it only if `after` is the end of the log and, where `after` has a name, the last
    /// message has that name. Messages arrive in the order in which they are sent.
    fn append(&self, after: Tip, entry: Entry) -> BoxFuture<'_, Result<Receipt, Failure>>;

    /// Why there is no connection; `None` while connected.
    fn broken(&self) -> Option<String>;
}

/// Runs until the process ends.
pub(super) async fn run(store: impl Store, queue: Arc<Queue>) -> anyhow::Result<()> {
    let mut fruitless = 0;
    loop {
        queue.reads_end();
        let answer = timeout(ANSWER_WITHIN, store.tip()).await;
        let tip = match answer.unwrap_or_else(|_| Err(format!("the log did not answer within {ANSWER_WITHIN:?}"))) {
            Ok(tip) => tip,
            Err(why) => {
                queue.away(&why);
                sleep(RETRY_AFTER).await;
                continue;
            }
        };
        queue.resume(tip.name.as_ref());
        let (end, written) = write(&store, &queue, tip).await;
        match end {
            End::TermBegan => {}
            End::Failed(Failure::TooLarge(why)) => {
                if !queue.shorten_first(&why) {
                    queue.away(&format!("the log refuses the short form of an event: {why}"));
                    sleep(RETRY_AFTER).await;
                }
            }
            End::Failed(Failure::Other(why)) => {
                fruitless = if written > 0 { 0 } else { fruitless + 1 };
                tracing::debug!(why, written, fruitless, "cannot write the decision log; retrying");
                if fruitless >= FRUITLESS_MAX {
                    queue.away(&why);
                    sleep(RETRY_AFTER).await;
                }
            }
        }
    }
}

/// Why the publisher reads the end of the log again.
enum End {
    TermBegan,
    Failed(Failure),
}

/// Writes until the end of the log must be read again. Returns the reason and the number of written messages.
async fn write(store: &impl Store, queue: &Queue, mut tip: Tip) -> (End, usize) {
    let mut sent: VecDeque<(Receipt, Instant)> = VecDeque::new();
    let mut added = queue.added();
    let mut written = 0;
    // A sequence does not show who wrote it. If another leader writes in place of one message in flight, the next
    // message would still fit. So each message names its predecessor. The first one uses the end that was just read.
    let mut last = Tip { sequence: tip.sequence, name: None };
    let failed = |why| End::Failed(Failure::Other(why));
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
                // Only the first message in the queue can be shortened, so the messages before this one are settled
                // first.
                Err(Failure::TooLarge(_)) if !sent.is_empty() => break,
                Err(failure) => return (End::Failed(failure), written),
            }
        }
        if sent.is_empty() && queue.needs_end() {
            return (End::TermBegan, written);
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
                    let why = format!("the log wrote a message at sequence {sequence} instead of {}", tip.sequence + 1);
                    return (failed(why), written);
                }
                Err(failure) => return (End::Failed(failure), written),
            },
            _ = added.changed(), if has_room => {}
            () = sleep_until(look_at) => {
                if let Some(why) = store.broken() {
                    return (failed(why), written);
                }
                if !sent.is_empty() {
                    return (failed(format!("the log did not acknowledge a message within {ANSWER_WITHIN:?}")), written);
                }
            }
        }
    }
}
