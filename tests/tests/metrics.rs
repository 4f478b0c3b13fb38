//! The metrics and their users: the page, the alerts with their runbooks, and the dashboards.

mod live;
mod rules;

use std::path::PathBuf;
use tests::chart::root;

/// Returns a path from the top of the tree.
fn at(path: &str) -> PathBuf {
    root().join(path)
}

#[test]
fn the_page_is_that_of_these_metrics() -> anyhow::Result<()> {
    crate::same("docs/metrics.md", &tests::metrics::page())
}
