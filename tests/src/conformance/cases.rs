//! The cases: what upstream's tests ask of a collector, as end states.

mod beyond;
mod conflicting;
mod end_to_end;
mod integration;

use super::step::Case;

/// All of them.
pub fn all() -> Vec<Case> {
    [conflicting::cases(), integration::cases(), end_to_end::cases(), beyond::cases()].into_iter().flatten().collect()
}
