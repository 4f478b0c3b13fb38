//! Delays of repeated decisions. If an action must be repeated soon after it was carried out, another client has undone
//! the action, or the server accepted the action without effect. Without a delay, the leader and that client would
//! repeat their writes at network speed.

use super::super::Event;
use super::super::context::Context;
use super::Dispatcher;
use crate::object::{Digest, ObjectRef, Uid};
use crate::queue::Delay;
use crate::time::Time;
use crate::work::Action;
use core::time::Duration;

/// Maximum number of targets whose last action is remembered.
pub(in crate::leader) const CARRIED_OUT_MAX: usize = 65_536;
/// Time within which a repeated decision counts as undone.
const UNDONE_WITHIN: Duration = Duration::from_secs(60);
/// Time of the first delay. The delay doubles with each repetition.
const UNDONE_MIN: Duration = Duration::from_secs(1);
/// Maximum delay.
const UNDONE_MAX: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug)]
pub(in crate::leader) struct CarriedOut {
    what: u64,
    at: Time,
    /// Number of times that the action was undone.
    times: u32,
}

impl Dispatcher {
    /// Returns whether the last action on this target is remembered.
    pub(in crate::leader) fn has_carried_out(&self, uid: &Uid) -> bool {
        self.carried_out.get(uid).is_some()
    }

    /// Records an action that was carried out and whose target still exists.
    pub(in crate::leader) fn note_carried_out(&mut self, cx: &Context, uid: &Uid, what: u64) {
        let waited = |known: &&CarriedOut| cx.now.since(known.at) <= UNDONE_WITHIN + 2 * UNDONE_MAX;
        let known = self.carried_out.get(uid).filter(|known| known.what == what).filter(waited);
        let times = known.map_or(0, |known| known.times);
        self.carried_out.put(uid.clone(), CarriedOut { what, at: cx.now, times });
    }

    /// Delays a decision that was carried out recently and undone since.
    pub(in crate::leader) fn delay_repeated(&mut self, cx: &mut Context, target: &ObjectRef, action: &Action) {
        let what = essence(action);
        let recent = |known: &&CarriedOut| known.what == what && cx.now.since(known.at) <= UNDONE_WITHIN;
        let Some(known) = self.carried_out.get(&target.uid).filter(recent).copied() else { return };
        let times = known.times.saturating_add(1);
        self.carried_out.put(target.uid.clone(), CarriedOut { times, ..known });
        let wait = UNDONE_MIN.saturating_mul(1 << (times - 1).min(16)).min(UNDONE_MAX);
        self.backoff(cx, &target.uid, wait, Delay::Undone { times });
        cx.event(Event::Undone { target: target.clone(), action: action.kind(), times, wait });
    }
}

/// Returns a hash of the effect of an action. It ignores the other fields of the target.
pub(in crate::leader) fn essence(action: &Action) -> u64 {
    let mut digest = Digest::default();
    digest.text(action.kind().as_str());
    match action {
        Action::Delete { .. } => {}
        Action::RemoveFinalizer { finalizer } => digest.text(finalizer),
        Action::RemoveOwnerReferences { owner_uids, entries, .. } => {
            owner_uids.iter().for_each(|uid| digest.uid(uid));
            entries.iter().for_each(|entry| digest.uid(&entry.uid));
        }
        Action::UnblockOwnerReferences { entries } => entries.iter().for_each(|entry| digest.uid(&entry.uid)),
    }
    digest.0
}
