//! The wire format of Ownergraph: generated messages and services and, with the feature `engine`, checked conversions
//! to and from the types of the engine.
//!
//! The crate has no behaviour: it decides nothing, opens no connection, and knows only the names of Kubernetes objects.
//! The services choose status codes.
//!
//! Modules in reading order:
//!
//! * `type`, [`work`], [`graph`], [`admin`], [`decision`], [`cloudevents`]: generated from the `.proto` files of the
//!   same package.
//! * `convert`, with the feature `engine`: engine values to messages and back, with checks of every field.
//! * `batch`, with the feature `engine`: splits lists that are too large for one message.
//! * [`error_reason`]: the reasons of errors as text.

#[cfg(feature = "engine")]
pub mod batch;
#[cfg(feature = "engine")]
pub mod convert;
pub mod error_reason;

#[cfg(test)]
#[cfg(feature = "engine")]
mod strategy;
#[cfg(test)]
#[cfg(feature = "engine")]
mod tests;

/// Shared messages: package `ownergraph.type`.
pub mod r#type {
    /// Version `v1beta1`.
    #[allow(clippy::all, clippy::wildcard_enum_match_arm, missing_debug_implementations, unused_qualifications)]
    pub mod v1beta1 {
        tonic::include_proto!("ownergraph.r#type.v1beta1");
    }
}

/// The lease protocol: package `ownergraph.work`.
pub mod work {
    /// Version `v1beta1`.
    #[allow(clippy::all, clippy::wildcard_enum_match_arm, missing_debug_implementations, unused_qualifications)]
    pub mod v1beta1 {
        tonic::include_proto!("ownergraph.work.v1beta1");
    }
}

/// Reads of the graph: package `ownergraph.graph`.
pub mod graph {
    /// Version `v1beta1`.
    #[allow(clippy::all, clippy::wildcard_enum_match_arm, missing_debug_implementations, unused_qualifications)]
    pub mod v1beta1 {
        tonic::include_proto!("ownergraph.graph.v1beta1");
    }
}

/// The decision log: package `ownergraph.decision`.
pub mod decision {
    /// Version `v1beta1`.
    #[allow(clippy::all, clippy::wildcard_enum_match_arm, missing_debug_implementations, unused_qualifications)]
    pub mod v1beta1 {
        tonic::include_proto!("ownergraph.decision.v1beta1");
    }
}

/// CloudEvents 1.0 as protobuf: package `io.cloudevents`.
pub mod cloudevents {
    /// Version `v1`.
    #[allow(clippy::all, clippy::wildcard_enum_match_arm, missing_debug_implementations, unused_qualifications)]
    pub mod v1 {
        tonic::include_proto!("io.cloudevents.v1");
    }
}

/// State for operators: package `ownergraph.admin`.
pub mod admin {
    /// Version `v1beta1`.
    #[allow(clippy::all, clippy::wildcard_enum_match_arm, missing_debug_implementations, unused_qualifications)]
    pub mod v1beta1 {
        tonic::include_proto!("ownergraph.admin.v1beta1");
    }
}

/// All files with their comments, as an encoded `FileDescriptorSet`, for the reflection service.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/ownergraph.bin"));
