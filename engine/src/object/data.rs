//! The forms of a uid and of a resourceVersion in recordings: short, and the same in each version of the format.

use super::{ResourceVersion, Uid, UidForm, Version};
use core::fmt;
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

impl Serialize for Uid {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0 {
            UidForm::Canonical(packed) => serializer.serialize_bytes(packed),
            UidForm::Text(text) => serializer.serialize_str(text),
        }
    }
}

impl<'de> Deserialize<'de> for Uid {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Uid, D::Error> {
        struct Form;

        impl Visitor<'_> for Form {
            type Value = Uid;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the 16 bytes of a uid, or its text")
            }

            fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Uid, E> {
                let packed = bytes.try_into().map_err(|_| E::invalid_length(bytes.len(), &self))?;
                Ok(Uid::of_canonical(packed))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Uid, E> {
                Uid::parse(text).ok_or_else(|| E::custom("the uid is empty"))
            }
        }

        deserializer.deserialize_any(Form)
    }
}

impl Serialize for ResourceVersion {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match (&self.0, self.number()) {
            (_, Some(number)) => serializer.serialize_u64(number),
            (Version::Opaque(text), None) => serializer.serialize_str(text),
            (Version::Ordered(_), None) => serializer.collect_str(self),
        }
    }
}

impl<'de> Deserialize<'de> for ResourceVersion {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ResourceVersion, D::Error> {
        struct Form;

        impl Visitor<'_> for Form {
            type Value = ResourceVersion;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a resourceVersion as a number or as text")
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<ResourceVersion, E> {
                Ok(ResourceVersion::of_number(number))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<ResourceVersion, E> {
                Ok(ResourceVersion::parse(text))
            }
        }

        deserializer.deserialize_any(Form)
    }
}
