//! Runs the simulator without an end: `sim [--seconds N] [--start-seed S] [--threads N] [--failures N]`.
//!
//! The simulator ends at the first failure. With `--failures` it lists this many failures, one per line. It prints its
//! progress every minute. `SEED=n` replays one seed, `FULL=1` prints the whole trace, and `NOSHRINK=1` keeps the
//! options as drawn. `PERILS=a,b` selects the perils. Without the variable, all perils are on. With an empty one, none
//! is. `RECORD=DIR` writes the inputs of the first process of the world of `SEED` into a directory.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;
use tests::sim::{self, Peril, Search, Tally};

fn main() -> anyhow::Result<ExitCode> {
    // A panic of the engine is a failure with a trace, like any other.
    std::panic::set_hook(Box::new(|_| {}));
    let mut out = std::io::stdout();
    let shrink = std::env::var_os("NOSHRINK").is_none();
    let perils = perils()?;
    if let (Ok(seed), Ok(directory)) = (std::env::var("SEED"), std::env::var("RECORD")) {
        let seed = seed.parse()?;
        sim::record(seed, &sim::Options::draw_with(seed, &perils), Path::new(&directory))?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Ok(seed) = std::env::var("SEED") {
        return match sim::examine(seed.parse()?, &perils, shrink) {
            Ok(tally) => {
                writeln!(out, "{tally}")?;
                Ok(ExitCode::SUCCESS)
            }
            Err(failure) => {
                failure.tell(&mut out)?;
                Ok(ExitCode::FAILURE)
            }
        };
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let number = |name: &str, default: usize| -> anyhow::Result<usize> {
        Ok(option(name)?.map_or(default, |value| usize::try_from(value).unwrap_or(default)))
    };
    let most = number("--failures", 1)?;
    let progress = |tally: &Tally, elapsed: Duration| {
        let faults: u64 = tally.faults.values().sum();
        let (seconds, worlds, steps) = (elapsed.as_secs(), tally.worlds, tally.steps);
        // The search continues with a closed stdout.
        let _ = writeln!(std::io::stdout(), "{seconds} s: {worlds} worlds, {steps} steps, {faults} faults");
    };
    let what = Search {
        start: option("--start-seed")?.unwrap_or(1),
        time: Duration::from_secs(option("--seconds")?.unwrap_or(u64::MAX / 2)),
        worlds_min: 0,
        threads: number("--threads", cores)?,
        failures_max: most,
        shrink: shrink && most == 1,
        perils,
    };
    let (tally, failures) = sim::search(&what, progress);
    for failure in &failures {
        if most == 1 {
            failure.tell(&mut out)?;
        } else {
            writeln!(out, "SEED={}: {}", failure.seed, failure.why.lines().next().unwrap_or_default())?;
        }
    }
    writeln!(out, "{tally}")?;
    Ok(if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Returns the perils that `PERILS` names, or all.
fn perils() -> anyhow::Result<Vec<Peril>> {
    let Ok(words) = std::env::var("PERILS") else { return Ok(Peril::ALL.to_vec()) };
    let mut perils = Vec::new();
    for word in words.split(',').filter(|word| !word.is_empty()) {
        match (word, Peril::ALL.iter().find(|peril| peril.as_str() == word)) {
            ("all", _) => perils.extend(Peril::ALL),
            (_, Some(peril)) => perils.push(*peril),
            (_, None) => anyhow::bail!("PERILS names {word}, which is none of {:?}", Peril::ALL.map(Peril::as_str)),
        }
    }
    perils.sort_unstable();
    perils.dedup();
    Ok(perils)
}

fn option(name: &str) -> anyhow::Result<Option<u64>> {
    let mut arguments = std::env::args().skip_while(|argument| argument != name);
    if arguments.next().is_none() {
        return Ok(None);
    }
    let value = arguments.next().ok_or_else(|| anyhow::anyhow!("{name} wants a number"))?;
    Ok(Some(value.parse()?))
}
