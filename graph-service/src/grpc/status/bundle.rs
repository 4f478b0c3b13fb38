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

/// A reader of a bundle is too slow.
pub(in crate::grpc) fn slow_reader() -> Status {
    let how = "the client read nothing for too long; call again: the bundle begins anew".to_owned();
    error(Code::ResourceExhausted, ErrorReason::SlowConsumer, how, &[], None)
}
