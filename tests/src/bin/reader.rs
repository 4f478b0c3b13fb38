//! `reader KUBECONFIG WAY FILE`: does the minimum reads of a starting collector, as a comparison for benchmarks. The
//! program reads the metadata of everything that supports list and watch, discards them, and writes the numbers of
//! collections and pages to `FILE`.

use anyhow::Context;
use kube_api::{Access, connect};
use std::fs;
use tests::reader::{Way, read};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, kubeconfig, way, file] = arguments.as_slice() else {
        anyhow::bail!("usage: reader KUBECONFIG json-pages|json-watch|protobuf-pages|protobuf-watch FILE")
    };
    let way = Way::ALL.into_iter().find(|known| known.word() == way).context("there is no such way")?;
    let access = Access { kubeconfig: Some(kubeconfig.into()), ..Access::default() };
    let read = read(&connect(&access).await?.client, way).await?;
    // The program writes another name first, so that a waiting reader never reads a partial file.
    fs::write(format!("{file}.end"), format!("{} {}", read.collections, read.pages))?;
    Ok(fs::rename(format!("{file}.end"), file)?)
}
