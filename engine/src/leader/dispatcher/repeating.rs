//! Success has a memory: what was carried out and has to be done again at once is undone by somebody, or was never done by the server that
//! accepted it. Without this the two would go on at the pace of the network.

use super::super::Event;
use super::super::context::Context;
use super::Dispatcher;
use crate::object::{Digest, ObjectRef, Uid};
use crate::queue::Delay;
use crate::time::Time;
use crate::work::Action;
use core::time::Duration;

/// Targets of which it is remembered what was carried out last.
pub(in crate::leader) const CARRIED_OUT_MAX: usize = 65_536;
/// What is decided again within this after it was carried out has been undone.
const UNDONE_WITHIN: Duration = Duration::from_secs(60);
/// The first wait, which doubles each time,
const UNDONE_MIN: Duration = Duration::from_secs(1);
/// up to this.
const UNDONE_MAX: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug)]
pub(in crate::leader) struct CarriedOut {
    what: u64,
    at: Time,
    /// How often it has been undone.
    times: u32,
}

impl Dispatcher {
    /// Whether it is remembered what was carried out on this target last.
    pub(in crate::leader) fn has_carried_out(&self, uid: &Uid) -> bool {
        self.carried_out.get(uid).is_some()
    }

    /// This was carried out, and its target is still there.
    pub(in crate::leader) fn note_carried_out(&mut self, cx: &Context, uid: &Uid, what: u64) {
        let waited = |known: &&CarriedOut| cx.now.since(known.at) <= UNDONE_WITHIN + 2 * UNDONE_MAX;
        let known = self.carried_out.get(uid).filter(|known| known.what == what).filter(waited);
        let times = known.map_or(0, |known| known.times);
        self.carried_out.put(uid.clone(), CarriedOut { what, at: cx.now, times });
    }

    /// Has a decision wait that was carried out a moment ago, and was undone since.
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

/// What an action comes to, whatever else its target says.
pub(in crate::leader) fn essence(action: &Action) -> u64 {
    let mut digest = Digest::default();
    digest.text(action.kind().as_str());
    match action {
        Action::Delete { .. } => {}
        Action::RemoveFinalizer { finalizer } => digest.text(finalizer),
        Action::RemoveOwnerReferences { owner_uids, entries } => {
            owner_uids.iter().for_each(|uid| digest.uid(uid));
            entries.iter().for_each(|entry| digest.uid(&entry.uid));
        }
        Action::UnblockOwnerReferences { entries } => entries.iter().for_each(|entry| digest.uid(&entry.uid)),
    }
    digest.0
}
