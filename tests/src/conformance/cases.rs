//! The cases: the demands of upstream's tests on a collector, as end states.

mod beyond;
mod conflicting;
mod end_to_end;
mod integration;

use super::step::Case;

/// All cases.
pub fn all() -> Vec<Case> {
    [conflicting::cases(), integration::cases(), end_to_end::cases(), beyond::cases()].into_iter().flatten().collect()
}
