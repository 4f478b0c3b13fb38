//! Compares previews with the results: the same objects go, and the same objects stay. `SEED=n` runs one world.
//! `SEEDS=n` runs this many.

use std::io::Write;
use tests::sim::{Previewed, preview};

const SEEDS: u64 = 200;

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

#[test]
fn what_a_preview_says_is_what_then_happens() {
    let seeds = match variable("SEED") {
        Some(seed) => seed..=seed,
        None => 1..=variable("SEEDS").unwrap_or(SEEDS),
    };
    let (mut all, mut failures) = (Previewed::default(), Vec::new());
    for seed in seeds.clone() {
        match preview(seed) {
            Ok(previewed) => all.add(&previewed),
            Err(why) => failures.push(format!("SEED={seed}: {why}")),
        }
    }
    writeln!(std::io::stderr(), "{all:?}").expect("stderr is open");
    assert!(failures.is_empty(), "{} of them differ:\n{}", failures.len(), failures.join("\n"));
    if seeds.count() as u64 >= SEEDS {
        for effect in ["delete", "waits", "reference removed", "orphaned", "held"] {
            assert!(all.effects.contains_key(effect), "nothing that the preview called {effect}");
        }
    }
}
