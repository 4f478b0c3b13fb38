//! Limits the log lines of each place in the code. The log stays readable and the disk does not fill, even if an
//! attacker creates a thousand objects or an API server fails without end.
//!
//! Messages are constant, so the place identifies the cause. Each place has a budget of lines that refills over time.
//! After suppressed lines, a line with their number precedes the next line of the place.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tracing::callsite::Identifier;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer};

/// Budget of warnings and errors: lines at once, and the time to regain one.
const ALARMS: Pace = Pace { burst: 100, another_after: Duration::from_secs(10) };
/// Budget of informational lines. Debug and trace are for diagnosis and have no limit.
const NEWS: Pace = Pace { burst: 500, another_after: Duration::from_millis(200) };

#[derive(Clone, Copy, Debug)]
struct Pace {
    burst: u32,
    another_after: Duration,
}

/// Suppresses lines over the budget. There is one entry for each place that ever logged, so the number of entries is
/// small.
#[derive(Debug, Default)]
pub(super) struct Limit {
    places: Mutex<HashMap<Identifier, Allowance>>,
}

/// The budget of one place.
#[derive(Debug)]
struct Allowance {
    lines: u32,
    /// The time up to which the budget is refilled.
    counted: Instant,
    left_out: u64,
}

impl Allowance {
    fn full(pace: Pace, now: Instant) -> Allowance {
        Allowance { lines: pace.burst, counted: now, left_out: 0 }
    }

    /// Whether a line may be written now, and the number of lines that were suppressed before it.
    fn take(&mut self, pace: Pace, now: Instant) -> Option<u64> {
        let passed = now.saturating_duration_since(self.counted);
        let added = u32::try_from(passed.as_nanos() / pace.another_after.as_nanos()).unwrap_or(u32::MAX);
        self.lines = self.lines.saturating_add(added).min(pace.burst);
        self.counted = if self.lines == pace.burst { now } else { self.counted + pace.another_after * added };
        if self.lines == 0 {
            self.left_out += 1;
            return None;
        }
        self.lines -= 1;
        Some(std::mem::take(&mut self.left_out))
    }
}

impl Limit {
    fn admits(&self, place: Identifier, level: Level, now: Instant) -> Option<u64> {
        let pace = match level {
            Level::ERROR | Level::WARN => ALARMS,
            Level::INFO => NEWS,
            _ => return Some(0),
        };
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        places.entry(place).or_insert_with(|| Allowance::full(pace, now)).take(pace, now)
    }
}

impl<S: Subscriber> Layer<S> for Limit {
    fn event_enabled(&self, event: &Event<'_>, _context: Context<'_, S>) -> bool {
        let metadata = event.metadata();
        match self.admits(metadata.callsite(), *metadata.level(), Instant::now()) {
            None => false,
            Some(0) => true,
            Some(lines) => {
                let (of, line) = (metadata.target(), metadata.line());
                tracing::warn!(lines, of, line, "suppressed lines like the next one");
                true
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use tracing_subscriber::layer::SubscriberExt;

    #[test]
    fn a_place_that_has_spent_its_lines_gets_new_ones_by_and_by() {
        let pace = Pace { burst: 3, another_after: Duration::from_secs(10) };
        let begun = Instant::now();
        let at = |seconds: u64| begun + Duration::from_secs(seconds);
        let mut place = Allowance::full(pace, begun);
        let spent: Vec<_> = (0..5).map(|_| place.take(pace, at(1))).collect();
        assert_eq!(spent, [Some(0), Some(0), Some(0), None, None]);
        assert_eq!(place.take(pace, at(9)), None);
        assert_eq!(place.take(pace, at(12)), Some(3), "and says how many were left out");
        assert_eq!(place.take(pace, at(19)), None);
        assert_eq!(place.take(pace, at(25)), Some(1), "parts of a wait are not lost");
        let rested: Vec<_> = (0..4).map(|_| place.take(pace, at(1000))).collect();
        assert_eq!(rested, [Some(0), Some(0), Some(0), None], "no place saves more than a burst");
    }

    /// Counts the lines that pass.
    #[derive(Clone, Default)]
    struct Count(Arc<Mutex<HashMap<&'static str, usize>>>);

    impl<S: Subscriber> Layer<S> for Count {
        fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
            *self.0.lock().unwrap().entry(event.metadata().level().as_str()).or_default() += 1;
        }
    }

    #[test]
    fn one_place_cannot_write_the_log_full_and_the_others_go_on() {
        let count = Count::default();
        let subscriber = tracing_subscriber::registry().with(count.clone()).with(Limit::default());
        tracing::subscriber::with_default(subscriber, || {
            for object in 0..1000 {
                tracing::warn!(object, "cannot be used");
                tracing::debug!(object, "looked at");
            }
            tracing::error!("something else");
        });
        let count = count.0.lock().unwrap();
        assert_eq!((count["WARN"], count["ERROR"], count["DEBUG"]), (100, 1, 1000));
    }
}
