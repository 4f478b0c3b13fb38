//! Comparison with another collector of the same cluster, in mode `observe`.
//!
//! Whatever the other collector does shows in the watches, and names nobody. [`Audited`] requests name the user.

mod audited;

pub use audited::{Audited, AuditedVerb, USER_MAX};
