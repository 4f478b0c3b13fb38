//! The fuzz entry point of the readers of audit events.

use super::event::{self, EVENTS_MAX, Found, Items};
use super::follower::Lines;
use engine::parity::USER_MAX;

/// A longer reason would carry foreign text without bound.
const REASON_MAX_BYTES: usize = 1_000;

/// Reads the bytes as a file, and as the body of a webhook.
pub(crate) fn audit(bytes: &[u8]) {
    let mut lines = Vec::new();
    Lines::default().split(bytes, &mut lines);
    for line in lines.iter().flatten() {
        check(event::line(line));
    }
    check(event::line(bytes));
    match event::list(bytes) {
        Ok(Items { kept, .. }) => {
            assert!(kept.len() <= EVENTS_MAX);
            kept.into_iter().for_each(|event| check(event::item(event)));
        }
        Err(why) => check(Err(why)),
    }
}

fn check(reading: event::Reading) {
    match reading {
        Ok(Some(Found { audited, .. })) => {
            assert!(audited.user.len() <= USER_MAX && !audited.collection.resource.is_empty());
        }
        Ok(None) => {}
        Err(why) => assert!(!why.is_empty() && why.len() <= REASON_MAX_BYTES, "a reason of {} bytes", why.len()),
    }
}
