//! Negotiates the form of an answer.

use axum::http::HeaderMap;
use axum::http::header::ACCEPT;

use super::encode::PROTOBUF;
use crate::model::{ApiError, Reason};

/// The forms of objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Full,
    /// PartialObjectMetadata: single objects, and the objects of watch events.
    Metadata,
    /// PartialObjectMetadataList.
    MetadataList,
    /// The table of `kubectl get`.
    Table,
    /// The aggregated form of discovery.
    Discovery,
}

/// A form and its encoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) form: Form,
    /// Kubernetes protobuf, only for metadata; else JSON.
    pub(crate) protobuf: bool,
}

/// Maximum number of alternatives of one Accept header.
const ALTERNATIVES_MAX: usize = 32;

/// The first form in the Accept header that is served here. `protobuf`: whether protobuf is served.
///
/// # Errors
/// 406 if there is none, for example for a client that accepts only whole objects as protobuf.
pub(crate) fn negotiate(headers: &HeaderMap, protobuf: bool) -> Result<Asked, ApiError> {
    let mut accepted = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok()).peekable();
    if accepted.peek().is_none() {
        return Ok(Asked { form: Form::Full, protobuf: false });
    }
    let alternatives = accepted.flat_map(|value| value.split(',')).take(ALTERNATIVES_MAX);
    alternatives.into_iter().find_map(|alternative| form(alternative, protobuf)).ok_or_else(|| {
        let message = "only the following media types are accepted: application/json, \
                       application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1, \
                       application/json;as=Table;g=meta.k8s.io;v=v1, \
                       application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
        ApiError::new(Reason::NotAcceptable, message)
    })
}

impl Form {
    /// # Errors
    /// 406 for a list in the form of a single object, or the reverse.
    pub(crate) fn check_fits(self, list: bool) -> Result<(), ApiError> {
        let message = match (self, list) {
            (Self::Metadata, true) => "you requested PartialObjectMetadata, but the requested object is a list",
            (Self::MetadataList, false) => {
                "you requested PartialObjectMetadataList, but the requested object is not a list"
            }
            (Self::Metadata | Self::MetadataList | Self::Full | Self::Table | Self::Discovery, _) => return Ok(()),
        };
        Err(ApiError::new(Reason::NotAcceptable, message))
    }
}

fn form(alternative: &str, protobuf: bool) -> Option<Asked> {
    let mut parts = alternative.split(';').map(str::trim);
    let media_type = parts.next()?;
    let protobuf = match media_type {
        "application/json" | "application/*" | "*/*" => false,
        PROTOBUF if protobuf => true,
        _ => return None,
    };
    let (mut kind, mut group, mut version) = ("", "", "");
    for (name, value) in parts.filter_map(|part| part.split_once('=')) {
        match name {
            "as" => kind = value,
            "g" => group = value,
            "v" => version = value,
            _ => {}
        }
    }
    let form = match (kind, group, version) {
        ("PartialObjectMetadata", "meta.k8s.io", "v1") => Form::Metadata,
        ("PartialObjectMetadataList", "meta.k8s.io", "v1") => Form::MetadataList,
        _ if protobuf => return None,
        ("", ..) => Form::Full,
        ("Table", "meta.k8s.io", "v1") => Form::Table,
        ("APIGroupDiscoveryList", "apidiscovery.k8s.io", "v2") => Form::Discovery,
        _ => return None,
    };
    Some(Asked { form, protobuf })
}
