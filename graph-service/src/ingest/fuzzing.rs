//! Fuzz entry points for documents about kinds and for guards.

use super::definitions::{Crd, Definition, Service};
use crate::guards::resource::{self, Sight};
use engine::guard::GuardKind;
use kube_api::discovery;
use serde_json::value::RawValue;
use std::time::Duration;

/// Foreign text in an error is clipped, or is one word of a document.
const REASON_MAX_BYTES: usize = 2_000;

fn ensure_said<T>(read: Result<T, String>) {
    if let Err(why) = read {
        assert!(!why.is_empty() && why.len() <= REASON_MAX_BYTES, "a reason of {} bytes: {:.500}", why.len(), why);
    }
}

pub(crate) fn discovery(bytes: &[u8]) {
    ensure_said(discovery::answer(bytes));
    ensure_said(discovery::resources(bytes));
}

pub(crate) fn definitions(bytes: &[u8]) {
    let Ok(document) = serde_json::from_slice::<&RawValue>(bytes) else { return };
    ensure_said(Crd::read(document));
    ensure_said(Service::read(document));
    for now in [None, Some(Duration::ZERO), Some(Duration::MAX)] {
        for kind in GuardKind::ALL {
            ensure_said(resource::read(kind, document.get(), Sight::Found { now }));
            ensure_said(resource::read(kind, document.get(), Sight::Fresh { now }));
        }
    }
}
