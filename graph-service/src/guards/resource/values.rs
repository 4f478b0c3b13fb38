//! Values of specs that know their bounds. A value out of bounds is an error at its position.

use engine::object::{GroupResource, Name};
use k8s_openapi::jiff::Timestamp;
use proto::convert::NAME_MAX_BYTES;
use serde::de::Error;
use serde::{Deserialize, Deserializer};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

/// A whole number from `MIN` to `MAX`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Within<const MIN: u64, const MAX: u64>(pub(super) u64);

impl<'de, const MIN: u64, const MAX: u64> Deserialize<'de> for Within<MIN, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = u64::deserialize(deserializer)?;
        if (MIN..=MAX).contains(&number) {
            return Ok(Within(number));
        }
        Err(D::Error::custom(format!("{number} is not from {MIN} to {MAX}")))
    }
}

/// A list of at most `MAX` entries.
#[derive(Debug)]
pub(super) struct Most<T, const MAX: usize>(pub(super) Vec<T>);

impl<T, const MAX: usize> Default for Most<T, MAX> {
    fn default() -> Self {
        Most(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>, const MAX: usize> Deserialize<'de> for Most<T, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let entries = Vec::deserialize(deserializer)?;
        if entries.len() > MAX {
            return Err(D::Error::custom(format!("has {} entries, more than {MAX}", entries.len())));
        }
        Ok(Most(entries))
    }
}

/// A name of 1 to 253 bytes.
#[derive(Debug, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct Word(pub(super) Name);

impl TryFrom<String> for Word {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match text.len() {
            0 => Err("is empty".to_owned()),
            1..=NAME_MAX_BYTES => Ok(Word(Arc::from(text))),
            long => Err(format!("has {long} bytes, more than {NAME_MAX_BYTES}")),
        }
    }
}

/// A time since 1970, in whole seconds.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct Date(pub(super) Duration);

impl TryFrom<String> for Date {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let time = Timestamp::from_str(&text).map_err(|_| "is not a time such as 2026-01-01T12:00:00Z".to_owned())?;
        let seconds = u64::try_from(time.as_second()).map_err(|_| "is before 1970".to_owned())?;
        Ok(Date(Duration::from_secs(seconds)))
    }
}

/// The digest of a cascade, as a plan prints it.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(try_from = "String")]
pub(super) struct Digest(pub(super) u64);

impl TryFrom<String> for Digest {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        let digest = u64::from_str_radix(&text, 16).ok().filter(|_| text.len() == 16 && text.bytes().all(is_digit));
        digest
            .map(Digest)
            .ok_or_else(|| "is not 16 hexadecimal digits in lower case, as `ownergraph approve` lists".to_owned())
    }
}

/// A collection.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Resource {
    #[serde(default)]
    group: String,
    resource: Word,
}

impl From<Resource> for GroupResource {
    fn from(raw: Resource) -> Self {
        GroupResource { group: Arc::from(raw.group), resource: raw.resource.0 }
    }
}
