//! Runs every reader of foreign bytes briefly, with the corpus and with changed copies of it. `SEED=n` repeats a run.
//! `INPUTS=n` sets its length.

use anyhow::{Context, ensure};
use std::fs;
use std::panic::catch_unwind;
use tests::fuzz::{Mutator, TARGETS, Target};

/// The maximum size of the corpus.
const CORPUS_MAX_BYTES: usize = 512 * 1024;

fn corpus(target: &Target) -> anyhow::Result<Vec<Vec<u8>>> {
    let directory = target.corpus();
    let mut inputs = Vec::new();
    let entries = fs::read_dir(&directory).with_context(|| format!("reading {}", directory.display()))?;
    for entry in entries {
        inputs.push(fs::read(entry?.path())?);
    }
    inputs.sort();
    ensure!(!inputs.is_empty(), "{} is empty", directory.display());
    Ok(inputs)
}

fn number(name: &str) -> anyhow::Result<Option<u64>> {
    std::env::var(name).ok().map(|text| text.parse().with_context(|| format!("{name}={text}"))).transpose()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().take(2_000).map(|byte| format!("{byte:02x}")).collect()
}

/// Some panics are expected, because the readers catch panics of foreign parsers. Their messages would fill the output.
fn run(target: &Target) -> anyhow::Result<usize> {
    let corpus = corpus(target)?;
    let seed = number("SEED")?.unwrap_or_else(|| uuid::Uuid::new_v4().as_u64_pair().0);
    let count = number("INPUTS")?.map_or(Ok(target.short_run), usize::try_from)?;
    let mut mutator = Mutator::new(seed);
    let made = (0..count).map(|_| mutator.input(&corpus));
    for (number, input) in corpus.iter().cloned().chain(made).enumerate() {
        let ended = catch_unwind(|| (target.read)(&input));
        ensure!(ended.is_ok(), "{}: SEED={seed}, input {number}: {}", target.name, hex(&input));
    }
    Ok(corpus.len() + count)
}

fn run_all(only: impl Fn(&Target) -> bool) -> anyhow::Result<()> {
    for target in TARGETS.iter().filter(|target| only(target)) {
        let inputs = run(target)?;
        eprintln!("{}: {inputs} inputs", target.name);
    }
    Ok(())
}

fn is_call(target: &Target) -> bool {
    ["calls", "work-streams"].contains(&target.name)
}

#[test]
fn decoders_survive_what_no_client_would_send() -> anyhow::Result<()> {
    run_all(|target| !is_call(target))
}

#[test]
fn the_service_survives_any_bytes_in_any_call() -> anyhow::Result<()> {
    run_all(is_call)
}

#[test]
fn every_target_has_a_corpus_and_every_corpus_a_target_and_they_are_small() -> anyhow::Result<()> {
    let mut bytes = 0;
    for target in TARGETS {
        bytes += corpus(&target)?.iter().map(Vec::len).sum::<usize>();
    }
    ensure!(bytes <= CORPUS_MAX_BYTES, "{bytes} bytes of corpus");
    // tests/fuzz/run.sh reads the names of its targets from this directory.
    let all = TARGETS[0].corpus();
    for directory in fs::read_dir(all.parent().context("each corpus is in a directory")?)? {
        let name = directory?.file_name();
        let is_known = name.to_str().is_some_and(|name| Target::named(name).is_some());
        ensure!(is_known, "tests/corpus/{} is of no target", name.display());
    }
    Ok(())
}
