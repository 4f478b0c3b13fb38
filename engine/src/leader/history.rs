//! Whether the store's history is still the one that the graph was built from.
//!
//! | State    | What it means                                   | Ends                                                              |
//! |----------|-------------------------------------------------|-------------------------------------------------------------------|
//! | Trusted  | the graph is of the history that the store has  | Rewound: a list, a watch or an answer contradicts what was seen   |
//! | Rewound  | the store went back; collections are listed anew| Settling: the last of them is listed, or cannot be                |
//! | Settling | reads are compared with what is known now       | Trusted: a minute of them fits together. Rewound: they do not     |
//!
//! A suspicion is independent of the state: a connection may break in each of them. Nothing is granted while there is one, nor outside
//! Trusted.

use super::{Config, OnStoreRewind};
use crate::coverage::KindId;
use crate::jitter::Jitter;
use crate::object::Uid;
use crate::recent::Recent;
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;

/// Questions to one collection before another one is asked.
const ASK_EACH: u32 = 3;
/// Reads in a row that have to fit together after a store went back, of which [`super::rewinding`] asks one every five seconds: a minute.
const SETTLED_AFTER: u32 = 12;
/// Answers in a row that have to agree after some contradicted each other, and that have to stand behind to show that the store went back.
pub(super) const AGREE_AFTER: u32 = 3;
/// uids that are remembered as deleted.
const GONE_MAX: usize = 65_536;

#[derive(Debug)]
pub(super) struct History {
    trust: Trust,
    suspicion: Option<Suspicion>,
    /// How often a store went back.
    count: u64,
    /// Why the process that runs the leader wants nothing granted.
    withheld: Option<String>,
    /// uids whose DELETED was seen last, by collection: one that is seen again there is of another history.
    gone: Recent<KindId>,
    /// A collection has been in doubt since all owners in deletion were judged last.
    blind: bool,
    /// The first round of the barrier that began after a connection broke last.
    barrier_from: u64,
}

#[derive(Debug)]
enum Trust {
    Trusted,
    /// `unlisted`: the collections that are not listed again yet. Never empty.
    Rewound {
        unlisted: BTreeSet<KindId>,
    },
    /// `fitted`: reads in a row that fit together. `behind`: reads in a row that stand before what was seen since.
    Settling {
        fitted: u32,
        behind: u32,
    },
}

/// Why the leader has to ask where the store stands.
#[derive(Debug)]
struct Suspicion {
    why: &'static str,
    /// Questions that were asked.
    asked: u32,
    /// Answers that have yet to agree.
    wanted: u32,
    /// One of several servers may have answered from the past.
    of_answers: bool,
    /// Answers in a row that stood before what the main store was seen at.
    behind: u32,
}

/// What an answer about a suspicion comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Agreement {
    /// Enough answers stand before what was seen: the store went back.
    WentBack,
    /// More answers are wanted.
    More,
    /// The store stands where it did.
    Enough,
}

/// What a read shows while the history settles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Read {
    /// It stands at or past what was seen.
    Fits,
    /// It stands before what was seen since the store went back: its server lags, or that was of the history before.
    Behind,
    /// It contradicts what its own collection has shown.
    Contradicts,
    /// There was no answer.
    Failed,
}

/// What a read while the history settles comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Settled {
    /// More reads are wanted.
    More,
    /// Enough reads stand behind: the store went back once more.
    WentBack,
    /// The history is trusted again.
    Trusted,
}

impl History {
    pub(super) fn new(secrets: &mut Jitter) -> History {
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

    /// Whether nothing stands against granting.
    pub(super) fn may_grant(&self) -> bool {
        !self.is_in_doubt() && self.withheld.is_none()
    }

    /// Whether the graph may be of another history than the store has.
    pub(super) fn is_in_doubt(&self) -> bool {
        self.is_suspect() || self.is_rewound()
    }

    pub(super) fn is_suspect(&self) -> bool {
        self.suspicion.is_some()
    }

    /// Whether the store went back, and what is known now is not yet known to fit together.
    pub(super) fn is_rewound(&self) -> bool {
        !matches!(self.trust, Trust::Trusted)
    }

    pub(super) fn is_settling(&self) -> bool {
        matches!(self.trust, Trust::Settling { .. })
    }

    /// How often a store went back. Positions of before say nothing of those after.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Why nothing is granted, if so.
    pub(super) fn stopped(&self, config: &Config) -> Option<String> {
        let why = match (&self.trust, &self.suspicion) {
            (Trust::Settling { .. }, _) if config.policy.on_store_rewind == OnStoreRewind::Hold => {
                "the store's history changed; restart this process to go on"
            }
            (Trust::Rewound { .. } | Trust::Settling { .. }, _) => {
                "the store's history changed, and it is not yet certain that what is known now fits together"
            }
            (Trust::Trusted, Some(suspicion)) => {
                return Some(format!("{}, and the store has not said where it stands", suspicion.why));
            }
            (Trust::Trusted, None) => return self.withheld.clone(),
        };
        Some(String::from(why))
    }

    /// A connection broke, or a watch ended before its time. True if the first suspicion.
    pub(super) fn suspect_connection(&mut self) -> Option<&'static str> {
        let why = "a connection broke, or a watch ended before its time";
        self.suspect(Suspicion { why, asked: 0, wanted: 1, of_answers: false, behind: 0 })
    }

    /// Answers of the API server contradict each other.
    pub(super) fn suspect_answers(&mut self) -> Option<&'static str> {
        let why = "answers of the API server contradict each other";
        self.suspect(Suspicion { why, asked: 0, wanted: AGREE_AFTER, of_answers: true, behind: 0 })
    }

    /// Gives the reason where there was no suspicion before.
    fn suspect(&mut self, new: Suspicion) -> Option<&'static str> {
        if let Some(known) = &mut self.suspicion {
            known.wanted = known.wanted.max(new.wanted);
            known.of_answers |= new.of_answers;
            return None;
        }
        Some(self.suspicion.insert(new).why)
    }

    /// Whether a question goes over a connection of its own, because another server may answer otherwise.
    pub(super) fn wants_other_servers(&self) -> bool {
        self.suspicion.as_ref().is_some_and(|suspicion| suspicion.of_answers)
    }

    /// Which of the collections that can be asked is asked next, as a number that grows; `None` without a suspicion.
    pub(super) fn next_witness(&self) -> Option<usize> {
        self.suspicion.as_ref().map(|suspicion| (suspicion.asked / ASK_EACH) as usize)
    }

    pub(super) fn asked(&mut self) {
        if let Some(suspicion) = &mut self.suspicion {
            suspicion.asked = suspicion.asked.saturating_add(1);
        }
    }

    /// An answer has come that stands where its collection was seen. `is_behind`: it stands before what the main store was seen at. `None`
    /// without a suspicion.
    pub(super) fn agree(&mut self, is_behind: bool) -> Option<Agreement> {
        let suspicion = self.suspicion.as_mut()?;
        suspicion.behind = if is_behind && suspicion.of_answers { suspicion.behind + 1 } else { 0 };
        if is_behind && suspicion.behind >= AGREE_AFTER {
            return Some(Agreement::WentBack);
        }
        if suspicion.wanted > 1 {
            suspicion.wanted -= 1;
            return Some(Agreement::More);
        }
        Some(Agreement::Enough)
    }

    /// Ends the suspicion. True if there was one.
    pub(super) fn clear(&mut self) -> bool {
        self.suspicion.take().is_some()
    }

    /// A store went back. `unlisted`: the collections that are listed again, where it was the main store.
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

    /// A collection of the new history is known, or cannot be. True if it was the last.
    pub(super) fn relisted(&mut self, kind: KindId) -> bool {
        let Trust::Rewound { unlisted } = &mut self.trust else { return false };
        let was_last = unlisted.remove(&kind) && unlisted.is_empty();
        if was_last {
            self.trust = Trust::Settling { fitted: 0, behind: 0 };
        }
        was_last
    }

    /// Reads in a row that fit together, while the history settles.
    pub(super) fn fitted(&self) -> Option<u32> {
        match self.trust {
            Trust::Settling { fitted, .. } => Some(fitted),
            Trust::Trusted | Trust::Rewound { .. } => None,
        }
    }

    /// Takes a read. `None` where the history does not settle.
    pub(super) fn settle(&mut self, read: Read) -> Option<Settled> {
        let Trust::Settling { fitted, behind } = &mut self.trust else { return None };
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

    /// The process that runs the leader wants nothing granted. Gives the reason of before.
    pub(super) fn withhold(&mut self, why: String) -> Option<String> {
        self.withheld.replace(why)
    }

    /// It allows grants again. True if it did not before.
    pub(super) fn allow(&mut self) -> bool {
        self.withheld.take().is_some()
    }

    /// Remembers a uid whose DELETED was seen: seen again, it is of another history.
    pub(super) fn remember_gone(&mut self, uid: Uid, kind: KindId) {
        // A uid that is deleted twice takes no second place.
        if !self.has_gone(&uid, kind) {
            self.gone.put(uid, kind);
        }
    }

    /// Whether this uid was deleted in this collection before.
    pub(super) fn has_gone(&self, uid: &Uid, kind: KindId) -> bool {
        self.gone.get(uid) == Some(&kind)
    }

    /// A collection is in doubt. `round`: the round of the barrier that begins next.
    pub(super) fn blinded(&mut self, round: u64) {
        self.blind = true;
        self.barrier_from = round;
    }

    pub(super) fn is_blind(&self) -> bool {
        self.blind
    }

    /// No collection is in doubt any more.
    pub(super) fn sees_again(&mut self) {
        self.blind = false;
    }

    /// The first round of the barrier that counts for collections in doubt.
    pub(super) fn barrier_from(&self) -> u64 {
        self.barrier_from
    }
}
