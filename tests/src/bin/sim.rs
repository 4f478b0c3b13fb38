//! The simulator without an end: `sim [--seconds N] [--start-seed S]`, `SEED=n` replays one seed, `FULL=1` with its whole trace.

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;
use tests::sim;

fn main() -> anyhow::Result<ExitCode> {
    // A panic of the engine is a failure like any other, told with its trace.
    std::panic::set_hook(Box::new(|_| {}));
    let mut out = std::io::stdout().lock();
    let result = match std::env::var("SEED") {
        Ok(seed) => sim::examine(seed.parse()?, std::env::var_os("NOSHRINK").is_none()),
        Err(_) => {
            let start = option("--start-seed")?.unwrap_or(1);
            let seconds = option("--seconds")?.unwrap_or(u64::MAX / 2);
            sim::search(start, Duration::from_secs(seconds), true)
        }
    };
    match result {
        Ok(tally) => {
            writeln!(out, "{tally}")?;
            Ok(ExitCode::SUCCESS)
        }
        Err(failure) => {
            failure.tell(&mut out)?;
            Ok(ExitCode::FAILURE)
        }
    }
}

fn option(name: &str) -> anyhow::Result<Option<u64>> {
    let mut arguments = std::env::args().skip_while(|argument| argument != name);
    if arguments.next().is_none() {
        return Ok(None);
    }
    let value = arguments.next().ok_or_else(|| anyhow::anyhow!("{name} wants a number"))?;
    Ok(Some(value.parse()?))
}
