//! The reference of the API says what the protocol says.

use anyhow::{Context, ensure};
use std::path::Path;
use tests::reference::page;

#[test]
fn the_reference_is_that_of_this_protocol() -> anyhow::Result<()> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference.md");
    let page = page()?;
    if std::env::var_os("BLESS").is_some() {
        return std::fs::write(&path, page).with_context(|| format!("writing {}", path.display()));
    }
    let there = std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    ensure!(there == page, "docs/reference.md is not of this protocol; BLESS=1 cargo test -p tests --test reference");
    Ok(())
}
