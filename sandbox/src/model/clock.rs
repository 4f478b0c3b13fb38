//! Instants of the model: milliseconds since the epoch, passed in by the caller.

/// The present, in milliseconds since the Unix epoch.
///
/// The model has no clock: the caller passes the time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Now(pub u64);

impl Now {
    /// The instant as `metav1.Time`: RFC 3339, whole seconds, UTC.
    pub fn timestamp(self) -> String {
        format_timestamp(self.seconds())
    }

    pub(crate) fn seconds(self) -> i64 {
        i64::try_from(self.0 / 1000).unwrap_or(i64::MAX)
    }
}

const SECONDS_PER_DAY: i64 = 86_400;

/// Seconds since the epoch as RFC 3339 in UTC.
pub(crate) fn format_timestamp(seconds: i64) -> String {
    let days = seconds.div_euclid(SECONDS_PER_DAY);
    let in_day = seconds.rem_euclid(SECONDS_PER_DAY);
    let (year, month, day) = civil_from_days(days);
    let (hour, minute, second) = (in_day / 3600, in_day / 60 % 60, in_day % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Seconds since the epoch of an RFC 3339 instant in UTC; `None` for any other text.
pub(crate) fn parse_timestamp(text: &str) -> Option<i64> {
    let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
    let mut date = date.splitn(3, '-').map(|part| part.parse::<i64>().ok());
    let (year, month, day) = (date.next()??, date.next()??, date.next()??);
    let mut time = time.splitn(3, ':');
    let (hour, minute) = (time.next()?.parse::<i64>().ok()?, time.next()?.parse::<i64>().ok()?);
    let second = time.next()?.split('.').next()?.parse::<i64>().ok()?;
    let sane = (1..=9999).contains(&year) && (1..=12).contains(&month) && (1..=31).contains(&day);
    let sane = sane && (0..24).contains(&hour) && (0..60).contains(&minute) && (0..=60).contains(&second);
    sane.then(|| days_from_civil(year, month, day) * SECONDS_PER_DAY + hour * 3600 + minute * 60 + second)
}

// The proleptic Gregorian calendar in eras of 400 years. Years begin in March, so that the leap day is the last.

fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let month_from_march = if month > 2 { month - 3 } else { month + 9 };
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_go_both_ways() {
        let cases = [(0, "1970-01-01T00:00:00Z"), (951_782_400, "2000-02-29T00:00:00Z"), (1_795_250_066, "")];
        for (seconds, text) in cases {
            let written = format_timestamp(seconds);
            assert!(text.is_empty() || written == text, "{written}");
            assert_eq!(parse_timestamp(&written), Some(seconds));
        }
        for wrong in ["", "yesterday", "2026-13-01T00:00:00Z", "2026-01-01T00:00:00+01:00", "T:Z"] {
            assert_eq!(parse_timestamp(wrong), None, "{wrong}");
        }
    }
}
