//! The style of objects in an answer.

use super::media::Form;
use crate::model::{Object, Type};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::Value;
use std::sync::Arc;

/// The style of the objects of one request.
#[derive(Debug, Clone)]
pub(crate) struct Style {
    pub(crate) form: Form,
    /// Protobuf, only for metadata.
    pub(crate) protobuf: bool,
    pub(crate) of: Arc<Type>,
    /// The requested version, which objects carry.
    pub(crate) api_version: String,
    pub(crate) include_object: IncludeObject,
}

/// An object in the requested form. Like the real server, lists of built-in types omit `apiVersion` and `kind` of their
/// items.
pub(crate) struct Shown<'a> {
    object: &'a Object,
    api_version: &'a str,
    form: Form,
    bare: bool,
}

impl<'a> Shown<'a> {
    pub(crate) fn full(object: &'a Object, api_version: &'a str) -> Self {
        Self { object, api_version, form: Form::Full, bare: false }
    }

    /// As an item of a list.
    pub(crate) fn item(object: &'a Object, style: &'a Style) -> Self {
        Self { object, api_version: &style.api_version, form: style.form, bare: !style.of.custom }
    }

    pub(crate) fn metadata(object: &'a Object) -> Self {
        Self { object, api_version: "", form: Form::Metadata, bare: false }
    }
}

impl Serialize for Shown<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        if matches!(self.form, Form::Metadata | Form::MetadataList) {
            map.serialize_entry("kind", "PartialObjectMetadata")?;
            map.serialize_entry("apiVersion", "meta.k8s.io/v1")?;
            map.serialize_entry("metadata", self.object.get("metadata").unwrap_or(&Value::Null))?;
            return map.end();
        }
        for (field, value) in self.object {
            match field.as_str() {
                "kind" | "apiVersion" if self.bare => {}
                "apiVersion" => map.serialize_entry(field, self.api_version)?,
                _ => map.serialize_entry(field, value)?,
            }
        }
        map.end()
    }
}

/// The part of a row besides its cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IncludeObject {
    None,
    Metadata,
    Object,
}

impl IncludeObject {
    pub(crate) fn parse(word: &str) -> Self {
        match word {
            "None" => Self::None,
            "Object" => Self::Object,
            _ => Self::Metadata,
        }
    }
}
