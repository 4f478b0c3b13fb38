//! The options of requests.

/// What becomes of the dependents.
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
    /// The older way to say it; excludes a policy.
    pub orphan_dependents: Option<bool>,
    pub dry_run: bool,
}

/// How a write is meant.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WriteOptions {
    /// Answer as if it were written, write nothing.
    pub dry_run: bool,
    pub subresource: Subresource,
}

/// Which face of an object a write goes to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Subresource {
    #[default]
    Main,
    /// `/status`: everything but `status` is ignored.
    Status,
}
