//! Which form of an answer a client wants.

use axum::http::HeaderMap;
use axum::http::header::ACCEPT;

use crate::model::{ApiError, Reason};

/// The forms in which objects are served, all of them JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Full,
    /// PartialObjectMetadata: single objects, and the objects of watch events.
    Metadata,
    /// PartialObjectMetadataList.
    MetadataList,
    /// What `kubectl get` prints.
    Table,
    /// The aggregated form of discovery.
    Discovery,
}

/// How many alternatives of one Accept header are looked at.
const ALTERNATIVES_MAX: usize = 32;

/// The first form in the Accept header that is served here.
///
/// # Errors
/// 406 when there is none, as for a client that takes nothing but protobuf.
pub(crate) fn negotiate(headers: &HeaderMap) -> Result<Form, ApiError> {
    let mut accepted = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok()).peekable();
    if accepted.peek().is_none() {
        return Ok(Form::Full);
    }
    let alternatives = accepted.flat_map(|value| value.split(',')).take(ALTERNATIVES_MAX);
    alternatives.into_iter().find_map(form).ok_or_else(|| {
        let message = "only the following media types are accepted: application/json, \
                       application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1, \
                       application/json;as=Table;g=meta.k8s.io;v=v1";
        ApiError::new(Reason::NotAcceptable, message)
    })
}

impl Form {
    /// # Errors
    /// 406 where a list is answered with single objects asked for, and the other way round.
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

fn form(alternative: &str) -> Option<Form> {
    let mut parts = alternative.split(';').map(str::trim);
    let media_type = parts.next()?;
    if !matches!(media_type, "application/json" | "application/*" | "*/*") {
        return None;
    }
    let (mut kind, mut group, mut version) = ("", "", "");
    for (name, value) in parts.filter_map(|part| part.split_once('=')) {
        match name {
            "as" => kind = value,
            "g" => group = value,
            "v" => version = value,
            _ => {}
        }
    }
    match (kind, group, version) {
        ("", ..) => Some(Form::Full),
        ("PartialObjectMetadata", "meta.k8s.io", "v1") => Some(Form::Metadata),
        ("PartialObjectMetadataList", "meta.k8s.io", "v1") => Some(Form::MetadataList),
        ("Table", "meta.k8s.io", "v1") => Some(Form::Table),
        ("APIGroupDiscoveryList", "apidiscovery.k8s.io", "v2") => Some(Form::Discovery),
        _ => None,
    }
}
