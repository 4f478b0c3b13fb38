//! The reference of the API agrees with the protocol.

use anyhow::{Context, ensure};
use std::path::{Path, PathBuf};
use tests::reference::{page, tests_of_bounds};

#[test]
fn the_reference_is_that_of_this_protocol() -> anyhow::Result<()> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference.md");
    let page = page()?;
    if std::env::var_os("BLESS").is_some() {
        return std::fs::write(&path, page).with_context(|| format!("writing {}", path.display()));
    }
    let there = std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    ensure!(
        there == page,
        "docs/reference.md is not of this protocol; BLESS=1 cargo test -p tests --test together reference::"
    );
    Ok(())
}

/// Returns the names of all functions in the tests of the workspace.
fn functions(directory: &Path, found: &mut Vec<String>) -> anyhow::Result<()> {
    for entry in std::fs::read_dir(directory)? {
        let path: PathBuf = entry?.path();
        if path.is_dir() && !path.ends_with("target") {
            functions(&path, found)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path)?;
            let name = |line: &str| Some(line.split_once("fn ")?.1.split_once('(')?.0.to_owned());
            found.extend(text.lines().filter_map(name));
        }
    }
    Ok(())
}

#[test]
fn each_bound_of_the_reference_has_a_test() -> anyhow::Result<()> {
    let mut there = Vec::new();
    for package in ["engine", "graph-service", "proto", "tests"] {
        functions(&Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(package), &mut there)?;
    }
    let missing: Vec<&str> = tests_of_bounds().filter(|test| !there.iter().any(|name| name == test)).collect();
    ensure!(missing.is_empty(), "no such tests: {missing:?}");
    Ok(())
}
