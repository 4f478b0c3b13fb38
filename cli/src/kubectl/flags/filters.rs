//! Flags that leave objects out of an answer.

use super::spans::span;
use crate::kubectl::selector::{fields, labels};
use kube::core::Selector;
use std::time::Duration;

/// Filters by labels and fields.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Filters")]
pub(crate) struct Selectors {
    /// Only objects with these labels, such as app=web,tier!=cache or 'env in (a,b)'. Labels are read from the API
    /// server.
    #[arg(short = 'l', long, value_name = "SELECTOR", value_parser = labels)]
    pub(crate) selector: Option<Selector>,
    /// Only objects with these fields, such as metadata.name=web or metadata.namespace!=kube-system. No other fields
    /// are possible.
    #[arg(long, value_name = "SELECTOR", value_parser = fields)]
    pub(crate) field_selector: Option<Selector>,
}

/// Filters by age, which is read from the API server.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
#[command(next_help_heading = "Filters")]
pub(crate) struct Ages {
    /// Only objects that are older than this, such as 30s, 10m or 1d.
    #[arg(long, value_name = "DURATION", value_parser = span)]
    pub(crate) older_than: Option<Duration>,
    /// Only objects that are newer than this.
    #[arg(long, value_name = "DURATION", value_parser = span)]
    pub(crate) newer_than: Option<Duration>,
}
