//! The queue of entries for the shared log, and the state of that log.
//!
//! The collector's task adds events and never waits. One task removes them after they are written. When the queue is
//! full, new events are lost. One entry stands for all events that are lost in a row.

use super::entry::{Entry, Loss, Name, Noted, Step, What};
use engine::work::Term;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

#[cfg(test)]
mod tests;

/// Bound of the queue while the log is reachable. A large cascade is decided faster than it is written; the queue holds
/// the difference.
const BURST: Bound = Bound { events: 262_144, bytes: 256 * 1024 * 1024 };
/// Bound of the queue while the log is unreachable, which can last.
const ABSENCE: Bound = Bound { events: 16_384, bytes: 32 * 1024 * 1024 };
/// Time after which a log that was never reached counts as unreachable.
const CONNECT_WITHIN: Duration = Duration::from_secs(2);

/// A bound of the queue.
#[derive(Clone, Copy, Debug)]
struct Bound {
    events: usize,
    bytes: usize,
}

/// The queue, shared by the collector's task and the publisher.
#[derive(Debug)]
pub(crate) struct Queue {
    waiting: Mutex<Waiting>,
    added: watch::Sender<()>,
    progress: watch::Sender<Progress>,
    /// The last term in which another process wrote the log.
    reached: watch::Sender<Option<Term>>,
    burst: Bound,
    absence: Bound,
    is_required: bool,
    begun: Instant,
}

#[derive(Debug, Default)]
struct Waiting {
    places: VecDeque<Place>,
    bytes: usize,
    /// Events added since the start of the process.
    taken: u64,
    /// The last term of this process, and whether it goes on.
    term: Option<Term>,
    leads: bool,
    /// Events added in that term.
    of_term: u64,
    /// The largest number of an event of that term that was sent.
    sent: u64,
    /// The publisher has begun to read the end of the log since that term began.
    end_is_read: bool,
    /// The end of the log, if another process wrote it. Only later terms can be written.
    fence: Option<Fence>,
    /// [`Waiting::taken`] at the last event for which there was no room.
    crowded_out: u64,
}

/// A term that another process has used.
#[derive(Debug)]
struct Fence {
    term: Term,
    /// The term is also that of this process, because a restored store showed the Lease of an earlier term.
    is_shared: bool,
}

#[derive(Debug)]
struct Place {
    entry: Entry,
    /// The entry may have been written, so it must not change.
    is_sent: bool,
    /// [`Waiting::taken`] at the last event that the entry stands for.
    taken: u64,
}

/// How much of the queue is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Progress {
    /// The number of added events that are written, or recorded as lost.
    pub(crate) settled: u64,
    pub(crate) standing: Standing,
    pub(crate) waiting: usize,
    /// Events lost since the start of the process.
    pub(crate) lost: u64,
    pub(crate) written: u64,
}

/// The state of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// The log was not reached yet.
    Connecting,
    Writing,
    /// The log cannot be written.
    Away {
        since: Instant,
        why: String,
    },
    /// The log is written, and many events wait.
    CatchingUp,
}

impl Queue {
    /// `is_required`: the leader grants nothing while the log is unreachable.
    pub(crate) fn new(is_required: bool) -> Queue {
        let progress = Progress { settled: 0, standing: Standing::Connecting, waiting: 0, lost: 0, written: 0 };
        Queue {
            waiting: Mutex::default(),
            added: watch::Sender::new(()),
            progress: watch::Sender::new(progress),
            reached: watch::Sender::new(None),
            burst: BURST,
            absence: ABSENCE,
            is_required,
            begun: Instant::now(),
        }
    }

    #[cfg(test)]
    pub(crate) fn bounded(events: usize, is_required: bool) -> Queue {
        let bound = |of: Bound| Bound { events, ..of };
        Queue { burst: bound(BURST), absence: bound(ABSENCE), ..Queue::new(is_required) }
    }

    pub(crate) fn is_required(&self) -> bool {
        self.is_required
    }

    pub(crate) fn progress(&self) -> watch::Receiver<Progress> {
        self.progress.subscribe()
    }

    /// The last term in which another process wrote the log. A leader of this term or an earlier one can write nothing,
    /// so it must end its term.
    pub(crate) fn reached(&self) -> watch::Receiver<Option<Term>> {
        self.reached.subscribe()
    }

    /// The number of added events.
    pub(crate) fn taken(&self) -> u64 {
        self.waiting().taken
    }

    /// The number of added events up to and including the last one without room; 0 if there was room for all.
    pub(crate) fn crowded_out(&self) -> u64 {
        self.waiting().crowded_out
    }

    /// Waits until the queue is empty, the log is unreachable, or the time is over.
    pub(crate) async fn emptied(&self, within: Duration) {
        let mut progress = self.progress();
        let hopeless =
            |progress: &Progress| progress.waiting == 0 || matches!(progress.standing, Standing::Away { .. });
        // The sender lives as long as this queue. An event that is not written in time stays unwritten.
        let _too_late = timeout(within, progress.wait_for(hopeless)).await;
    }

    pub(super) fn take(&self, steps: impl Iterator<Item = Step>) {
        let mut waiting = self.waiting();
        let bound = match self.progress.borrow().standing {
            Standing::Away { .. } => self.absence,
            Standing::Connecting | Standing::Writing | Standing::CatchingUp => self.burst,
        };
        let mut lost = 0;
        for step in steps {
            match step {
                Step::Begin(term, _) => waiting.begin(term),
                Step::End => waiting.leads = false,
                Step::Event(noted) => lost += u64::from(!waiting.add(noted, bound)),
            }
        }
        self.tell(&waiting, |progress| progress.lost += lost);
        drop(waiting);
        self.added.send_replace(());
    }

    /// Notifies of added events.
    pub(super) fn added(&self) -> watch::Receiver<()> {
        self.added.subscribe()
    }

    /// Records that the publisher begins to read the end of the log.
    pub(super) fn reads_end(&self) {
        self.waiting().end_is_read = true;
    }

    /// Whether the publisher must read the end of the log before it sends events of the current term.
    pub(super) fn needs_end(&self) -> bool {
        !self.waiting().end_is_read
    }

    /// The entry at this index, marked as sent. `None` if there is none, or if [`Queue::needs_end`] holds it back.
    pub(super) fn send(&self, at: usize) -> Option<Entry> {
        let mut waiting = self.waiting();
        let Waiting { places, term, sent, end_is_read, .. } = &mut *waiting;
        let place = places.get_mut(at)?;
        let name = &place.entry.name;
        if Some(&name.term) == term.as_ref() {
            if !*end_is_read {
                return None;
            }
            *sent = name.number.max(*sent);
        }
        place.is_sent = true;
        Some(place.entry.clone())
    }

    /// Removes the first entry, which is written.
    pub(crate) fn written(&self) {
        let mut waiting = self.waiting();
        let settled = waiting.pop();
        self.reachable(&waiting, settled, 1);
    }

    /// Records that the log is writable and ends with `last`. Removes entries that are already written, and those of
    /// terms that another process has used or passed.
    pub(super) fn resume(&self, last: Option<&Name>) {
        let mut waiting = self.waiting();
        let (mut settled, mut written, mut lost) = (None, 0, 0);
        waiting.fence = last.and_then(|name| waiting.fence_of(name));
        if let Some(Fence { term, .. }) = &waiting.fence {
            self.reached.send_if_modified(|reached| reached.replace(term.clone()).as_ref() != Some(term));
        }
        while let (Some(last), Some(first)) = (last, waiting.places.front()) {
            let name = &first.entry.name;
            if waiting.is_fenced(&name.term) {
                // The lost event is not settled, so that no grant relies on it.
                lost += waiting.pop().map_or(0, |_| 1);
            } else if name.term == last.term && name.number <= last.number {
                settled = waiting.pop();
                written += 1;
            } else {
                break;
            }
        }
        if lost > 0 {
            tracing::warn!(
                events = lost,
                "another replica writes the decision log in this term or a later one; events that were not written are lost"
            );
        }
        self.progress.send_modify(|progress| progress.lost += lost);
        if waiting.places.is_empty() {
            self.reachable(&waiting, settled, written);
        } else {
            self.tell(&waiting, |progress| {
                progress.settled = settled.unwrap_or(progress.settled);
                progress.written += written;
            });
        }
    }

    /// Handles an entry that the log refuses as too large. Replaces the entry by its short form, and the short form by
    /// a loss. Returns false if the log is required and refuses even the short form, because a required log loses
    /// nothing.
    pub(super) fn shorten_first(&self, why: &str) -> bool {
        let mut waiting = self.waiting();
        let Some(place) = waiting.places.front_mut() else { return true };
        let lost = match &place.entry.what {
            What::Event(_) => 0,
            What::Stub(_) if !self.is_required => 1,
            What::Stub(_) | What::Loss(_) => return false,
        };
        let before = place.entry.len();
        let what = std::mem::replace(&mut place.entry.what, What::Loss(Loss::default()));
        place.entry.what = what.shortened();
        let after = place.entry.len();
        waiting.bytes = waiting.bytes - before + after;
        if lost > 0 {
            tracing::warn!(why, "an event is lost: the decision log refuses it as too large");
        } else {
            tracing::debug!(why, "an event is too large for the decision log; writing its short form");
        }
        self.tell(&waiting, |progress| progress.lost += lost);
        true
    }

    /// Records that the log is not writable.
    pub(crate) fn away(&self, why: &str) {
        let waiting = self.waiting();
        let standing = self.progress.borrow().standing.clone();
        let since = match standing {
            Standing::Connecting if self.begun.elapsed() < CONNECT_WITHIN => return,
            Standing::Away { since, .. } => since,
            Standing::Connecting | Standing::Writing | Standing::CatchingUp => {
                let what = if self.is_required { "grants are suspended" } else { "grants continue" };
                tracing::warn!(why, meanwhile = what, "the decision log is unreachable");
                Instant::now()
            }
        };
        self.tell(&waiting, |progress| progress.standing = Standing::Away { since, why: why.to_owned() });
    }

    fn reachable(&self, waiting: &Waiting, settled: Option<u64>, written: u64) {
        let before = self.progress.borrow().standing.clone();
        self.tell(waiting, |progress| {
            progress.settled = settled.unwrap_or(progress.settled);
            progress.written += written;
            progress.standing = match progress.standing {
                _ if !self.has_more_than(waiting, 16) => Standing::Writing,
                Standing::Writing if !self.has_more_than(waiting, 2) => Standing::Writing,
                Standing::Connecting | Standing::Writing | Standing::Away { .. } | Standing::CatchingUp => {
                    Standing::CatchingUp
                }
            };
        });
        if let Standing::Away { since, .. } = before {
            let (away_for, lost) = (since.elapsed().as_secs_f64(), self.progress.borrow().lost);
            tracing::info!(away_for, lost, waiting = waiting.places.len(), "the decision log is reachable again");
        }
    }

    fn tell(&self, waiting: &Waiting, change: impl FnOnce(&mut Progress)) {
        self.progress.send_modify(|progress| {
            progress.waiting = waiting.places.len();
            if progress.standing == Standing::Writing && self.has_more_than(waiting, 2) {
                progress.standing = Standing::CatchingUp;
            }
            change(progress);
        });
    }

    /// Whether more than one part in `parts` of the queue's bound is used.
    fn has_more_than(&self, waiting: &Waiting, parts: usize) -> bool {
        waiting.places.len() > self.burst.events / parts || waiting.bytes > self.burst.bytes / parts
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        // A panic under this lock ends the process.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    /// Returns false if the event is lost.
    fn add(&mut self, noted: Noted, bound: Bound) -> bool {
        let Some(term) = self.term.clone().filter(|_| self.leads) else { return true };
        self.taken += 1;
        self.of_term += 1;
        let taken = self.taken;
        if self.is_fenced(&term) {
            return false;
        }
        let name = Name { term, number: self.of_term };
        let (events, bytes) = (self.places.len(), self.bytes + noted.event.len());
        let last = self.places.back_mut().filter(|place| !place.is_sent && place.entry.name.term == name.term);
        if let Some(place) = last
            && let What::Loss(loss) = &mut place.entry.what
            && (events > bound.events / 2 || bytes > bound.bytes / 2)
        {
            // The loss grows until there is ample room, because one long gap is better than many short ones.
            loss.add(&noted);
            place.entry.name = name;
            place.taken = taken;
            self.crowded_out = taken;
            return false;
        }
        let fits = events < bound.events && bytes <= bound.bytes;
        if !fits {
            self.crowded_out = taken;
        }
        let what = if fits { What::Event(noted) } else { What::Loss(Loss::of(&noted)) };
        let entry = Entry { name, what };
        self.bytes += entry.len();
        self.places.push_back(Place { entry, is_sent: false, taken });
        fits
    }

    fn pop(&mut self) -> Option<u64> {
        let place = self.places.pop_front()?;
        self.bytes -= place.entry.len();
        Some(place.taken)
    }

    /// A term of this process begins, or goes on after an interruption.
    fn begin(&mut self, term: Term) {
        self.leads = true;
        if self.term.as_ref() != Some(&term) {
            self.term = Some(term);
            self.of_term = 0;
            self.sent = 0;
            self.end_is_read = false;
        }
    }

    /// The fence of a log that ends with this message. Messages up to the last sent one of the current term are those
    /// of this process.
    fn fence_of(&self, last: &Name) -> Option<Fence> {
        let is_of_this_term = self.term.as_ref() == Some(&last.term);
        let is_own = is_of_this_term && last.number <= self.sent;
        (!is_own).then(|| Fence { term: last.term.clone(), is_shared: is_of_this_term })
    }

    /// Whether another process has used or passed this term of this process. Terms of two elections have no order. Then
    /// the term in which this replica leads is the later one.
    fn is_fenced(&self, ours: &Term) -> bool {
        self.fence.as_ref().is_some_and(|Fence { term, is_shared }| {
            if ours == term {
                *is_shared
            } else if ours.election == term.election {
                ours.number < term.number
            } else {
                !(self.leads && self.term.as_ref() == Some(ours))
            }
        })
    }
}
