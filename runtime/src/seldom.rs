//! Log lines about what foreign peers do: one a minute for each cause, with the number of the others.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// The least time between two log lines of one cause.
const SAID_EVERY: Duration = Duration::from_secs(60);

/// The causes of log lines. There is an entry for each cause that was ever met, so a peer must not choose the causes.
#[derive(Debug)]
pub struct Seldom<K>(Mutex<HashMap<K, Said>>);

#[derive(Debug)]
struct Said {
    at: Instant,
    /// The number of occurrences that were not logged.
    unsaid: u64,
}

impl<K> Default for Seldom<K> {
    fn default() -> Seldom<K> {
        Seldom(Mutex::default())
    }
}

impl<K: Eq + Hash> Seldom<K> {
    /// If this occurrence is to be logged, returns the number of occurrences of the cause since its last log line.
    pub fn unsaid(&self, cause: K) -> Option<u64> {
        let now = Instant::now();
        let mut said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match said.get_mut(&cause) {
            Some(last) if now.duration_since(last.at) < SAID_EVERY => {
                last.unsaid += 1;
                None
            }
            last => {
                let unsaid = last.map_or(0, |last| last.unsaid);
                said.insert(cause, Said { at: now, unsaid: 0 });
                Some(unsaid)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn each_cause_is_logged_once_a_minute_with_the_number_of_the_others() {
        let seldom = Seldom::default();
        let found: Vec<_> = [1, 1, 2, 1].map(|cause| seldom.unsaid(cause)).into();
        assert_eq!(found, [Some(0), None, Some(0), None]);
        tokio::time::advance(SAID_EVERY).await;
        assert_eq!((seldom.unsaid(1), seldom.unsaid(2), seldom.unsaid(1)), (Some(2), Some(0), None));
    }
}
