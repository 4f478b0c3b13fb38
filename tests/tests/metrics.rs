//! The metrics and their users: the page, the alerts with their runbooks, and the dashboards.

mod live;
mod rules;

use anyhow::{Context, ensure};
use std::path::{Path, PathBuf};

/// Returns a path from the top of the tree.
fn at(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

#[test]
fn the_page_is_that_of_these_metrics() -> anyhow::Result<()> {
    let (path, page) = (at("docs/metrics.md"), tests::metrics::page());
    if std::env::var_os("BLESS").is_some() {
        return std::fs::write(&path, page).with_context(|| format!("writing {}", path.display()));
    }
    let there = std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    ensure!(
        there == page,
        "docs/metrics.md is not of these metrics; BLESS=1 cargo test -p tests --test together metrics::the_page"
    );
    Ok(())
}
