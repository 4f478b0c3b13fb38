//! The options of requests.

/// The treatment of dependents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    Orphan,
    Background,
    Foreground,
}

/// The options of a DELETE.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeleteOptions {
    /// Precondition: the object has this uid.
    pub uid: Option<String>,
    /// Precondition: the object is at this resourceVersion.
    pub resource_version: Option<String>,
    pub grace_period_seconds: Option<i64>,
    pub propagation_policy: Option<Policy>,
    /// The older form of the policy; excludes `propagationPolicy`.
    pub orphan_dependents: Option<bool>,
    pub dry_run: bool,
}

/// The options of a write.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WriteOptions {
    /// Answer as if it were written, and write nothing.
    pub dry_run: bool,
    pub subresource: Subresource,
}

/// The part of an object that a write changes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Subresource {
    #[default]
    Main,
    /// `/status`: everything but `status` is ignored.
    Status,
}
