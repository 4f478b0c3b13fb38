//! Checks for fields of several messages.

use super::{DURATION_MAX, Malformed, NAME_MAX_BYTES};
use engine::object::{Name, Uid, clip};
use engine::text::{is_harmless, spelled};
use engine::work::LeaseId;
use std::borrow::Cow;
use std::time::Duration;

/// A required message field.
pub(super) fn required<T>(value: Option<T>, field: &str) -> Result<T, Malformed> {
    value.ok_or_else(|| Malformed::new(field, "is missing"))
}

/// A required message field with checks of its own.
pub(super) fn nested<W, E>(value: Option<W>, field: &str) -> Result<E, Malformed>
where
    E: TryFrom<W, Error = Malformed>,
{
    E::try_from(required(value, field)?).map_err(|error| error.within(field))
}

/// An optional message field with checks of its own.
pub(super) fn optional<W, E>(value: Option<W>, field: &str) -> Result<Option<E>, Malformed>
where
    E: TryFrom<W, Error = Malformed>,
{
    value.map(|value| E::try_from(value).map_err(|error| error.within(field))).transpose()
}

/// A list of at most `max` entries, each with checks of its own.
pub(super) fn list<W, E>(
    entries: Vec<W>,
    max: usize,
    field: &str,
    convert: impl Fn(W) -> Result<E, Malformed>,
) -> Result<Vec<E>, Malformed> {
    at_most(entries.len(), max, field)?;
    let numbered = entries.into_iter().enumerate();
    numbered.map(|(at, entry)| convert(entry).map_err(|error| error.within(&format!("{field}[{at}]")))).collect()
}

/// A list of at most `max` lease ids.
pub(super) fn lease_ids(texts: Vec<String>, max: usize, field: &str) -> Result<Vec<LeaseId>, Malformed> {
    at_most(texts.len(), max, field)?;
    texts.iter().map(|text| lease_id(text, field)).collect()
}

pub(super) fn at_most(count: usize, max: usize, field: &str) -> Result<(), Malformed> {
    if count > max {
        return Err(Malformed::new(field, format!("has {count} entries, more than {max}")));
    }
    Ok(())
}

/// A name: a non-empty text of bounded length in visible ASCII characters, such as names and uids of Kubernetes.
pub(super) fn name(text: &str, field: &str) -> Result<Name, Malformed> {
    if text.is_empty() {
        return Err(Malformed::new(field, "is empty"));
    }
    if text.len() > NAME_MAX_BYTES {
        return Err(Malformed::new(field, format!("has {} bytes, more than {NAME_MAX_BYTES}", text.len())));
    }
    if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(Malformed::new(field, "has characters other than visible ASCII characters"));
    }
    Ok(Name::from(text))
}

/// The name of an executor, which is a pod name.
pub(super) fn pod_name(text: &str, field: &str) -> Result<Name, Malformed> {
    let name = name(text, field)?;
    if !is_dns_subdomain(text) {
        let why = "is not a DNS-1123 subdomain: lower case letters, digits, `-` and `.`, with a letter or digit at both ends of each part";
        return Err(Malformed::new(field, why));
    }
    Ok(name)
}

/// Whether a text is a DNS-1123 subdomain, as pod names are, regardless of its length.
pub fn is_dns_subdomain(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    text.split('.').all(|label| {
        let bytes = label.as_bytes();
        let ends = bytes.first().zip(bytes.last());
        ends.is_some_and(|(&first, &last)| is_plain(first) && is_plain(last))
            && bytes.iter().all(|&byte| is_plain(byte) || byte == b'-')
    })
}

/// A text for people, possibly from a webhook or an API server: on one line, with control and invisible characters
/// escaped, and no longer than `max`.
pub(super) fn text(text: &str, max: usize) -> String {
    // The part beyond the limit is not processed.
    let near = clip(text, max);
    if let Cow::Owned(shown) = spelled(&near, is_harmless) {
        return clip(&shown, max);
    }
    near
}

pub(super) fn uid(text: &str, field: &str) -> Result<Uid, Malformed> {
    Uid::parse(text).ok_or_else(|| Malformed::new(field, "is empty"))
}

pub(super) fn lease_id(text: &str, field: &str) -> Result<LeaseId, Malformed> {
    LeaseId::parse(text).ok_or_else(|| Malformed::new(field, "is not a lease id"))
}

/// A number that the protocol carries as text. Clients must not interpret the text.
pub(super) fn decimal(text: &str, field: &str) -> Result<u64, Malformed> {
    text.parse().map_err(|_| Malformed::new(field, "is not a decimal number of 64 bits"))
}

/// A required duration, from zero to [`DURATION_MAX`].
pub(super) fn duration(value: Option<prost_types::Duration>, field: &str) -> Result<Duration, Malformed> {
    let value = required(value, field)?;
    let duration = read(value).ok_or_else(|| Malformed::new(field, "is negative or not a duration"))?;
    if duration > DURATION_MAX {
        return Err(Malformed::new(field, format!("is longer than {} s", DURATION_MAX.as_secs())));
    }
    Ok(duration)
}

/// `None` for a negative duration and for nanoseconds that are not less than a second.
fn read(value: prost_types::Duration) -> Option<Duration> {
    match (u64::try_from(value.seconds), u32::try_from(value.nanos)) {
        (Ok(seconds), Ok(nanos @ ..=999_999_999)) => Some(Duration::new(seconds, nanos)),
        (Ok(_) | Err(_), _) => None,
    }
}

/// A measured duration, at most [`DURATION_MAX`]: zero if missing, the maximum if invalid.
pub(super) fn measured(value: Option<prost_types::Duration>) -> Duration {
    value.map_or(Duration::ZERO, |value| read(value).unwrap_or(DURATION_MAX).min(DURATION_MAX))
}

/// A requested duration, at most [`DURATION_MAX`]: `None` if missing or invalid.
pub(super) fn wished(value: Option<prost_types::Duration>) -> Option<Duration> {
    value.and_then(read).map(|wish| wish.min(DURATION_MAX))
}

/// A duration of an interval, which must not be zero.
pub(super) fn positive_duration(value: Option<prost_types::Duration>, field: &str) -> Result<Duration, Malformed> {
    let duration = duration(value, field)?;
    if duration.is_zero() {
        return Err(Malformed::new(field, "is zero"));
    }
    Ok(duration)
}

/// The lifetime of an order: whole seconds, and not zero.
pub(super) fn lifetime(value: Option<prost_types::Duration>, field: &str) -> Result<Duration, Malformed> {
    let lifetime = positive_duration(value, field)?;
    if lifetime.subsec_nanos() != 0 {
        return Err(Malformed::new(field, "is not a whole number of seconds"));
    }
    Ok(lifetime)
}

/// Checks the reason of an order, which is for people.
pub(super) fn reason(reason: &str, of: &str, max: usize) -> Result<(), Malformed> {
    if reason.trim().is_empty() {
        return Err(Malformed::new("reason", format!("is empty: give the reason of the {of} for other users")));
    }
    if reason.len() > max {
        return Err(Malformed::new("reason", format!("has more than {max} bytes")));
    }
    Ok(())
}

/// The name of a resource of ours; `None` if it is not one.
pub(super) fn object_name(text: &str) -> Option<Name> {
    (text.len() <= NAME_MAX_BYTES && is_dns_subdomain(text)).then(|| Name::from(text))
}

/// The inverse of [`duration`]. Cuts to [`DURATION_MAX`].
pub(super) fn encode_duration(duration: Duration) -> prost_types::Duration {
    let duration = duration.min(DURATION_MAX);
    prost_types::Duration {
        seconds: i64::try_from(duration.as_secs()).expect("DURATION_MAX fits"),
        nanos: i32::try_from(duration.subsec_nanos()).expect("less than 10^9 fits"),
    }
}
