//! The reference of the API agrees with the protocol.

use anyhow::ensure;
use std::path::{Path, PathBuf};
use tests::chart::root;
use tests::reference::{page, tests_of_bounds};

#[test]
fn the_reference_is_that_of_this_protocol() -> anyhow::Result<()> {
    crate::same("docs/reference.md", &page()?)
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
        functions(&root().join(package), &mut there)?;
    }
    let missing: Vec<&str> = tests_of_bounds().filter(|test| !there.iter().any(|name| name == test)).collect();
    ensure!(missing.is_empty(), "no such tests: {missing:?}");
    Ok(())
}
