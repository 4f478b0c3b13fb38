//! Spans of time in flags: those of kubectl and Go, and days.

use graph_service::options::duration;
use std::time::Duration;

const DAY_S: u64 = 86_400;
/// Stands for no limit. A time so far away can still be added to an instant.
pub(crate) const FOR_EVER: Duration = Duration::from_secs(10 * 365 * DAY_S);
const WANTED: &str = "expected a duration such as 90s, 1h30m or 2d";

/// Parses `90s`, `1h30m`, `1d12h`, `0s` or `0`.
pub(crate) fn span(text: &str) -> Result<Duration, String> {
    let (days, rest) = match text.split_once('d') {
        Some((days, "")) => (days, "0s"),
        Some((days, rest)) => (days, rest),
        None => ("0", text),
    };
    let days: u32 = days.parse().map_err(|_| WANTED)?;
    let rest = match rest {
        "0" | "0s" | "0m" | "0h" => Duration::ZERO,
        rest => duration(rest).map_err(|_| WANTED)?,
    };
    let whole = Duration::from_secs(u64::from(days) * DAY_S).checked_add(rest);
    whole.filter(|whole| *whole <= FOR_EVER).ok_or_else(|| WANTED.to_owned())
}

/// Parses a span that is not zero.
pub(crate) fn lifetime(text: &str) -> Result<Duration, String> {
    span(text).and_then(|span| if span.is_zero() { Err(WANTED.to_owned()) } else { Ok(span) })
}

/// Parses a time limit. Zero means that there is none.
pub(crate) fn limit(text: &str) -> Result<Duration, String> {
    span(text).map(|span| if span.is_zero() { FOR_EVER } else { span })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_those_of_go_and_days() {
        let read = [
            ("0", 0),
            ("0s", 0),
            ("90s", 90_000),
            ("1h30m", 5_400_000),
            ("1.5s", 1_500),
            ("1d", 86_400_000),
            ("1d12h", 129_600_000),
            ("2d0s", 172_800_000),
        ];
        for (text, milliseconds) in read {
            assert_eq!(span(text), Ok(Duration::from_millis(milliseconds)), "{text}");
        }
        for wrong in ["", "5", "d", "1d2d", "1.5d", "-1s", "1y", "s", "4000d", "99999999999999h"] {
            assert_eq!(span(wrong), Err(WANTED.to_owned()), "{wrong}");
        }
        assert_eq!(
            (lifetime("0s").is_err(), limit("0"), limit("1m")),
            (true, Ok(FOR_EVER), Ok(Duration::from_secs(60)))
        );
    }
}
