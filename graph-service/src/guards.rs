//! The resources of guards: pauses, protections, budgets, approvals and gates. This module reads and writes their form at
//! the API server; the engine applies them.
//!
//! In reading order: `resource` (a guard from its resource), `status` (its status), `orders` (patches of its spec for a
//! caller).

pub(crate) mod orders;
pub(crate) mod resource;
pub(crate) mod status;
