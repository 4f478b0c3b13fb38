//! The marks of an object: the numbers of the selectors that match its labels and annotations.

use alloc::sync::Arc;

/// The numbers of the selectors that match an object, ascending. An empty set has no allocation, and equal sets of
/// consecutive objects share one.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Marks(Option<Arc<[u16]>>);

impl Marks {
    /// The marks of an object whose labels or annotations are unknown. They count as all selectors. An allocated set
    /// without numbers stands for them.
    pub fn unknown() -> Marks {
        Marks(Some(Arc::from([])))
    }

    pub fn are_unknown(&self) -> bool {
        self.0.as_ref().is_some_and(|numbers| numbers.is_empty())
    }

    /// The numbers, ascending; none if they are unknown.
    pub fn numbers(&self) -> &[u16] {
        self.0.as_deref().unwrap_or_default()
    }

    /// Whether the selector with this number matches, or may match.
    pub fn has(&self, selector: u16) -> bool {
        self.are_unknown() || self.numbers().binary_search(&selector).is_ok()
    }

    pub(crate) fn of(numbers: &[u16]) -> Marks {
        Marks((!numbers.is_empty()).then(|| Arc::from(numbers)))
    }
}
