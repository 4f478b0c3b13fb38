//! The comparison with another collector, for readers.

use super::Queries;
use crate::leader::Mode;
use crate::parity::{Disagreement, ParityView};
use crate::work::Term;
use core::time::Duration;

impl<'a> Queries<'a> {
    /// Returns whether the mode of this replica is observe.
    pub fn observes(&self) -> bool {
        self.cx().config.mode == Mode::Observe
    }

    /// Returns the term of the comparison with another collector. `None` if this replica compares nothing, because it
    /// does not lead, or its mode is not observe.
    pub fn compared_term(&self) -> Option<&'a Term> {
        self.cx().term.as_ref().filter(|_| self.cx().compares())
    }

    /// Returns the comparison with another collector, of the last `window` or of the whole term. `None` if this replica
    /// compares nothing, because it does not lead, or its mode is not observe.
    pub fn parity(&self, window: Option<Duration>) -> Option<ParityView> {
        self.cx().compares().then(|| self.leader.parity.view(self.cx().now, window))
    }

    /// Returns the kept disagreements with a number below `before`, the newest first.
    pub fn disagreements(&self, before: Option<u64>) -> impl Iterator<Item = &'a Disagreement> + use<'a> {
        self.leader.parity.disagreements(before)
    }
}
