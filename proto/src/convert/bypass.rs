//! Bypasses of gates.

use super::pause::REASON_MAX_BYTES;
use super::{Malformed, field};
use crate::admin::v1beta1::BypassGateRequest;
use engine::guard::GuardKind;
use engine::object::Name;
use std::time::Duration;

#[cfg(test)]
mod tests;

/// Maximum difference between the clocks of two API servers. A guard must not end early because of it, and a permission
/// must not last longer.
pub const CLOCK_AHEAD_MAX: Duration = Duration::from_secs(10);

/// A checked [`BypassGateRequest`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BypassOrder {
    pub gate: Name,
    /// Whole seconds.
    pub lifetime: Duration,
    pub reason: String,
}

impl TryFrom<BypassGateRequest> for BypassOrder {
    type Error = Malformed;

    fn try_from(request: BypassGateRequest) -> Result<Self, Malformed> {
        let name = request.name.strip_prefix(GuardKind::Gate.plural()).and_then(|rest| rest.strip_prefix('/'));
        let gate = field::object_name(name.unwrap_or_default());
        let gate = gate.ok_or_else(|| Malformed::new("name", "does not have the form gates/{gate}"))?;
        let lifetime = field::lifetime(request.ttl, "ttl")?;
        if lifetime <= CLOCK_AHEAD_MAX {
            let seconds = CLOCK_AHEAD_MAX.as_secs();
            let why = format!("is at most {seconds} s: clocks differ, so a bypass ends {seconds} s before its time");
            return Err(Malformed::new("ttl", why));
        }
        field::reason(&request.reason, "bypass", REASON_MAX_BYTES)?;
        Ok(BypassOrder { gate, lifetime, reason: request.reason })
    }
}
