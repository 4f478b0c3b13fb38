//! Whether the store's history is still the one that the graph was built from.
//!
//! | State    | What it means                                   | Ends                                                              |
//! |----------|-------------------------------------------------|-------------------------------------------------------------------|
//! | Trusted  | the graph is of the history that the store has  | Rewound: a list, a watch or an answer contradicts what was seen   |
//! | Rewound  | the store went back; collections are listed again| Settling: the last of them is listed, or cannot be                |
//! | Settling | reads are compared with what is known now       | Trusted: a minute of them fits together. Rewound: they do not     |
//!
//! A suspicion is independent of the state: a connection may break in each of them. Nothing is granted while there is
//! one, nor outside Trusted.

use super::{Config, OnStoreRewind};
use crate::coverage::KindId;
use crate::jitter::Rng;
use crate::object::Uid;
use crate::recent::Recent;
use crate::time::Time;
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;

/// Number of questions to one collection before the leader asks another collection.
const ASK_EACH: u32 = 3;
/// Number of consecutive consistent reads that end the settling after a store rewind. [`super::rewinding`] sends one
/// read every five seconds, so 12 reads take one minute.
const SETTLED_AFTER: u32 = 12;
/// Number of consecutive answers that must agree after a contradiction. The same number of consecutive answers behind
/// the known position shows a store rewind.
pub(super) const AGREE_AFTER: u32 = 3;
/// Maximum number of uids that are remembered as deleted.
const GONE_MAX: usize = 65_536;

#[derive(Debug)]
pub(super) struct History {
    trust: Trust,
    suspicion: Option<Suspicion>,
    /// Number of store rewinds.
    count: u64,
    /// The reason of the process that runs the leader for withholding grants.
    withheld: Option<String>,
    /// The most recently deleted uids, by collection. A uid that appears there again belongs to another history.
    gone: Recent<KindId>,
    /// True if a collection was in doubt after the last judging of all owners in deletion.
    blind: bool,
    /// The first barrier round that began after the last broken connection.
    barrier_from: u64,
}

#[derive(Debug)]
enum Trust {
    Trusted,
    /// `unlisted` holds the collections that are not listed again yet. It is never empty.
    Rewound {
        unlisted: BTreeSet<KindId>,
    },
    /// `fitted` counts consecutive consistent reads. `behind` counts consecutive reads whose version is before a
    /// position seen since the rewind. `due` is the time of the next read, and `None` while its answer is awaited.
    /// Timers and answers of an earlier settling do not count.
    Settling {
        fitted: u32,
        behind: u32,
        due: Option<Time>,
    },
}

/// The reason for a question about the position of the store.
#[derive(Debug)]
struct Suspicion {
    why: &'static str,
    /// Number of questions that were asked.
    asked: u32,
    /// Number of answers that must still agree.
    wanted: u32,
    /// True if another reason appeared after the last question. The answer may be from before that reason.
    outdated: bool,
    /// True if one of several servers may have answered from an earlier state.
    of_answers: bool,
    /// Number of consecutive answers whose version was before the known position of the main store.
    behind: u32,
}

/// The conclusion from an answer during a suspicion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Agreement {
    /// Enough answers are before the known position: the store was rewound.
    WentBack,
    /// More answers are required.
    More,
    /// The answer does not count, because another reason for the suspicion appeared after the question.
    Outdated,
    /// The store is at or past its known position.
    Enough,
}

/// The result of a read while the history settles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Read {
    /// The version of the read is at or past the known position.
    Fits,
    /// The version of the read is before a position that was seen since the rewind. Either the server of the read lags,
    /// or the position belongs to the earlier history.
    Behind,
    /// The read contradicts the objects of its own collection.
    Contradicts,
    /// The read failed.
    Failed,
}

/// The conclusion from a read while the history settles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Settled {
    /// More reads are required.
    More,
    /// Enough reads are behind the known position: the store was rewound again.
    WentBack,
    /// The history is trusted again.
    Trusted,
}

impl History {
    pub(super) fn new(secrets: &mut Rng) -> History {
        History {
            trust: Trust::Trusted,
            suspicion: None,
            count: 0,
            withheld: None,
            gone: Recent::new(GONE_MAX, secrets.next()),
            blind: false,
            barrier_from: 0,
        }
    }

    /// Returns whether the history permits grants.
    pub(super) fn may_grant(&self) -> bool {
        !self.is_in_doubt() && self.withheld.is_none()
    }

    /// Returns whether the graph may belong to another history than the store.
    pub(super) fn is_in_doubt(&self) -> bool {
        self.is_suspect() || self.is_rewound()
    }

    pub(super) fn is_suspect(&self) -> bool {
        self.suspicion.is_some()
    }

    /// Returns whether a store rewind is not settled yet.
    pub(super) fn is_rewound(&self) -> bool {
        !matches!(self.trust, Trust::Trusted)
    }

    pub(super) fn is_settling(&self) -> bool {
        matches!(self.trust, Trust::Settling { .. })
    }

    /// Returns the number of store rewinds. Positions from before a rewind say nothing about positions after it.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Returns the reason for withholding all grants, if there is one.
    pub(super) fn stopped(&self, config: &Config) -> Option<String> {
        let why = match (&self.trust, &self.suspicion) {
            (Trust::Settling { .. }, _) if config.policy.on_store_rewind == OnStoreRewind::Hold => {
                "the store was rewound; restart this process to resume grants (--on-store-rewind=hold)"
            }
            (Trust::Rewound { .. } | Trust::Settling { .. }, _) => {
                "the store was rewound, and its reads are not yet known to be consistent"
            }
            (Trust::Trusted, Some(suspicion)) => {
                return Some(format!("{}, and the position of the store is unknown", suspicion.why));
            }
            (Trust::Trusted, None) => return self.withheld.clone(),
        };
        Some(String::from(why))
    }

    /// Records a broken connection or a watch that ended early. Returns the reason if no suspicion existed before.
    pub(super) fn suspect_connection(&mut self) -> Option<&'static str> {
        let why = "a connection broke, or a watch ended too early";
        self.suspect(Suspicion { why, asked: 0, wanted: 1, outdated: false, of_answers: false, behind: 0 })
    }

    /// Records that answers of the API server contradict each other. Returns the reason if no suspicion existed before.
    pub(super) fn suspect_answers(&mut self) -> Option<&'static str> {
        let why = "answers of the API server contradict each other";
        self.suspect(Suspicion { why, asked: 0, wanted: AGREE_AFTER, outdated: false, of_answers: true, behind: 0 })
    }

    /// Adds a suspicion. Returns the reason if no suspicion existed before.
    fn suspect(&mut self, new: Suspicion) -> Option<&'static str> {
        if let Some(known) = &mut self.suspicion {
            known.wanted = known.wanted.max(new.wanted);
            known.of_answers |= new.of_answers;
            known.outdated = true;
            return None;
        }
        Some(self.suspicion.insert(new).why)
    }

    /// Returns whether each question uses a separate connection, because another server may answer differently.
    pub(super) fn wants_other_servers(&self) -> bool {
        self.suspicion.as_ref().is_some_and(|suspicion| suspicion.of_answers)
    }

    /// Returns the index of the next witness to ask, as a number that grows. Returns `None` without a suspicion.
    pub(super) fn next_witness(&self) -> Option<usize> {
        self.suspicion.as_ref().map(|suspicion| (suspicion.asked / ASK_EACH) as usize)
    }

    pub(super) fn asked(&mut self) {
        if let Some(suspicion) = &mut self.suspicion {
            suspicion.asked = suspicion.asked.saturating_add(1);
            suspicion.outdated = false;
        }
    }

    /// Handles an answer that does not contradict its collection. `is_behind` is true if its version is before the
    /// known position of the main store. Returns `None` without a suspicion.
    pub(super) fn agree(&mut self, is_behind: bool) -> Option<Agreement> {
        let suspicion = self.suspicion.as_mut()?;
        suspicion.behind = if is_behind && suspicion.of_answers { suspicion.behind + 1 } else { 0 };
        if is_behind && suspicion.behind >= AGREE_AFTER {
            return Some(Agreement::WentBack);
        }
        if suspicion.outdated {
            return Some(Agreement::Outdated);
        }
        if suspicion.wanted > 1 {
            suspicion.wanted -= 1;
            return Some(Agreement::More);
        }
        Some(Agreement::Enough)
    }

    /// Ends the suspicion. Returns true if there was one.
    pub(super) fn clear(&mut self) -> bool {
        self.suspicion.take().is_some()
    }

    /// Records a store rewind. `unlisted` holds the collections to list again; it is `None` if the rewound store is not
    /// the main store.
    pub(super) fn rewind(&mut self, unlisted: Option<&[KindId]>) {
        self.count += 1;
        self.blind = true;
        self.gone.clear();
        let Some(unlisted) = unlisted else { return };
        self.suspicion = None;
        let mut all = match core::mem::replace(&mut self.trust, Trust::Trusted) {
            Trust::Rewound { unlisted } => unlisted,
            Trust::Trusted | Trust::Settling { .. } => BTreeSet::new(),
        };
        all.extend(unlisted);
        if !all.is_empty() {
            self.trust = Trust::Rewound { unlisted: all };
        }
    }

    /// Records that a collection of the new history is listed or cannot be listed. Returns true for the last
    /// collection.
    pub(super) fn relisted(&mut self, kind: KindId) -> bool {
        let Trust::Rewound { unlisted } = &mut self.trust else { return false };
        let was_last = unlisted.remove(&kind) && unlisted.is_empty();
        if was_last {
            self.trust = Trust::Settling { fitted: 0, behind: 0, due: None };
        }
        was_last
    }

    /// Sets the time of the next read.
    pub(super) fn settle_at(&mut self, at: Time) {
        if let Trust::Settling { due, .. } = &mut self.trust {
            *due = Some(at);
        }
    }

    /// Returns the number of consecutive consistent reads if the next read is due.
    pub(super) fn take_due(&mut self, now: Time) -> Option<u32> {
        match &mut self.trust {
            Trust::Settling { fitted, due, .. } => due.take_if(|at| *at <= now).map(|_| *fitted),
            Trust::Trusted | Trust::Rewound { .. } => None,
        }
    }

    /// Handles a read. Returns `None` if the history does not await one.
    pub(super) fn settle(&mut self, read: Read) -> Option<Settled> {
        let Trust::Settling { fitted, behind, due: None } = &mut self.trust else { return None };
        (*fitted, *behind) = match read {
            Read::Fits => (*fitted + 1, 0),
            Read::Behind => (0, *behind + 1),
            Read::Contradicts => (0, 0),
            Read::Failed => (0, *behind),
        };
        if *behind >= AGREE_AFTER {
            return Some(Settled::WentBack);
        }
        if *fitted < SETTLED_AFTER {
            return Some(Settled::More);
        }
        self.trust = Trust::Trusted;
        Some(Settled::Trusted)
    }

    /// Withholds grants for the process that runs the leader. Returns the previous reason.
    pub(super) fn withhold(&mut self, why: String) -> Option<String> {
        self.withheld.replace(why)
    }

    /// Permits grants again. Returns true if the process withheld grants before.
    pub(super) fn allow(&mut self) -> bool {
        self.withheld.take().is_some()
    }

    /// Remembers a uid after its DELETED event. If the uid appears again, it belongs to another history.
    pub(super) fn remember_gone(&mut self, uid: Uid, kind: KindId) {
        // A uid that is deleted twice takes only one place.
        if !self.has_gone(&uid, kind) {
            self.gone.put(uid, kind);
        }
    }

    /// Returns whether this uid was deleted in this collection before.
    pub(super) fn has_gone(&self, uid: &Uid, kind: KindId) -> bool {
        self.gone.get(uid) == Some(&kind)
    }

    /// Records that a collection is in doubt. `round` is the next barrier round.
    pub(super) fn blinded(&mut self, round: u64) {
        self.blind = true;
        self.barrier_from = round;
    }

    pub(super) fn is_blind(&self) -> bool {
        self.blind
    }

    /// Records that no collection is in doubt any more.
    pub(super) fn sees_again(&mut self) {
        self.blind = false;
    }

    /// Returns the first barrier round that counts for collections in doubt.
    pub(super) fn barrier_from(&self) -> u64 {
        self.barrier_from
    }
}
