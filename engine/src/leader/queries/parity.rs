//! The comparison with another collector, for readers.

use super::Queries;
use crate::parity::{Disagreement, ParityView};
use core::time::Duration;

impl<'a> Queries<'a> {
    /// Returns the comparison with another collector, of the last `window` or of the whole term. `None` if this replica
    /// compares nothing, because it does not lead, or its mode is not observe.
    pub fn parity(&self, window: Option<Duration>) -> Option<ParityView> {
        self.cx.compares().then(|| self.parity.view(self.cx.now, window))
    }

    /// Returns the kept disagreements with a number below `before`, the newest first.
    pub fn disagreements(&self, before: Option<u64>) -> impl Iterator<Item = &'a Disagreement> + use<'a> {
        self.parity.disagreements(before)
    }
}
