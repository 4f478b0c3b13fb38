//! `performance DIR [FILE]`: writes `docs/performance.md`, or another file, from the results of the benchmarks in
//! `DIR`.

use anyhow::Context;
use std::path::{Path, PathBuf};
use tests::performance::document;

fn main() -> anyhow::Result<()> {
    let arguments: Vec<PathBuf> = std::env::args_os().map(PathBuf::from).collect();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("the crate is below the root")?;
    let (directory, file) = match arguments.as_slice() {
        [_, directory] => (directory, root.join("docs/performance.md")),
        [_, directory, file] => (directory, file.clone()),
        _ => anyhow::bail!("usage: performance DIR [FILE]"),
    };
    std::fs::write(&file, document(directory)?).with_context(|| format!("writing {}", file.display()))
}
