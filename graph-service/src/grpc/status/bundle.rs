//! Statuses of exports of bundles.

use super::{RETRY_LATER, TEXT_MAX_BYTES, error, reason};
use engine::object::clip;
use proto::r#type::v1beta1::ErrorReason;
use std::io;
use tonic::{Code, Status};

/// Another bundle is being exported.
pub(in crate::grpc) fn busy() -> Status {
    let how = "this replica already exports a bundle; call again when that has ended".to_owned();
    error(Code::ResourceExhausted, ErrorReason::LimitExceeded, how, &[(reason::LIMIT, "1")], Some(RETRY_LATER))
}

/// A file of the recording cannot be read.
pub(in crate::grpc) fn unread(why: &io::Error) -> Status {
    let how = format!("the recording cannot be read: {}", clip(&why.to_string(), TEXT_MAX_BYTES));
    error(Code::Unavailable, ErrorReason::CallFailed, how, &[], Some(RETRY_LATER))
}
