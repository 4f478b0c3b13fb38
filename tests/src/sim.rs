//! The whole collector in a simulation: replicas of the graph service, executors, an API server and its users, on one
//! thread in virtual time.
//!
//! A seed determines the whole run, with its faults and options. The same seed gives the same run. A run has two
//! phases. In the first phase, users and faults act, and the judge checks every write of the collector against the true
//! state. In the second phase, users and faults stop, and the collector must finish all work within bounded time.
//!
//! The modules in reading order: `options` and `kinds` (the parameters of a world), `truth` and `law` (the true state,
//! and the judge of the collector), `server`, `users`, `attempt`, `executor`, `replica`, and `world`, which runs them.

use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

mod attempt;
mod clock;
mod election;
mod engines;
mod executor;
mod guards;
mod ingest;
mod kinds;
mod law;
mod options;
mod perils;
mod preview;
mod recorded;
mod replica;
mod rewind;
mod server;
mod stream;
mod tally;
mod truth;
mod users;
mod world;

pub use options::{Faults, Options, Users};
pub use perils::{Peril, Perils};
pub use preview::{Previewed, preview};
pub use recorded::record;
pub use tally::Tally;

use world::World;

/// The number of trace lines that a failure shows.
const TRACE_LINES: usize = 120;
/// The interval of progress lines.
const PROGRESS_S: u64 = 60;
/// The maximum number of runs that simplify one failure.
const SHRINK_RUNS: usize = 400;

/// A run that violated a rule.
#[derive(Clone, Debug)]
pub struct Failure {
    pub seed: u64,
    pub options: Options,
    pub why: String,
    pub trace: Vec<String>,
}

/// Runs one world.
///
/// # Errors
/// The violation, without a trace.
pub fn run(seed: u64, options: &Options) -> Result<Tally, String> {
    attempt_run(seed, options, false).map_err(|(why, _)| why)
}

fn attempt_run(seed: u64, options: &Options, trace: bool) -> Result<Tally, (String, Vec<String>)> {
    let mut world = World::new(seed, options, trace);
    let ended = catch_unwind(AssertUnwindSafe(|| world.run()));
    let why = match ended {
        Ok(Ok(())) => {
            world.tally.worlds = 1;
            world.tally.late_writes(world.server.late_writes);
            return Ok(world.tally);
        }
        Ok(Err(why)) => why,
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            format!("panic: {}", text.unwrap_or_default())
        }
    };
    Err((why, world.take_trace()))
}

/// Runs the world of a seed. After a failure, simplifies the options, and runs the world again for its trace.
///
/// # Errors
/// The failure, with the end of its trace.
pub fn examine(seed: u64, perils: &[Peril], shrink: bool) -> Result<Tally, Box<Failure>> {
    let mut options = Options::draw_with(seed, perils);
    let Err(first) = run(seed, &options) else {
        return run(seed, &options).map_err(|why| Box::new(Failure { seed, options, why, trace: Vec::new() }));
    };
    let kind = sort(&first);
    let mut runs = if shrink { SHRINK_RUNS } else { 0 };
    'shrink: while runs > 0 {
        for simpler in options.simpler() {
            if runs == 0 {
                break 'shrink;
            }
            runs -= 1;
            if run(seed, &simpler).is_err_and(|why| sort(&why) == kind) {
                options = simpler;
                continue 'shrink;
            }
        }
        break;
    }
    let (why, mut trace) = match attempt_run(seed, &options, true) {
        Err(failed) => failed,
        Ok(_) => (format!("{first}, but not when traced: the run is not deterministic"), Vec::new()),
    };
    trace.retain(|line| !line.contains("Heartbeat"));
    let mut trace: Vec<String> = trace.iter().map(|line| brief(line)).collect();
    if std::env::var_os("FULL").is_none() {
        trace.drain(..trace.len().saturating_sub(TRACE_LINES));
    }
    Err(Box::new(Failure { seed, options, why, trace }))
}

/// The kind of a violation: its words without names and numbers.
fn sort(why: &str) -> String {
    let words =
        why.split_whitespace().filter(|word| word.chars().all(|letter| letter.is_ascii_alphabetic() || letter == ':'));
    let lower = words.filter(|word| word.chars().all(|letter| !letter.is_uppercase()));
    lower.take(12).collect::<Vec<_>>().join(" ")
}

/// The parameters of a search.
#[derive(Clone, Debug)]
pub struct Search {
    /// The first seed.
    pub start: u64,
    pub time: Duration,
    /// This many worlds are run, regardless of the time.
    pub worlds_min: u64,
    pub threads: usize,
    /// The search ends at so many failures.
    pub failures_max: usize,
    /// Failures are made smaller.
    pub shrink: bool,
    /// The perils that worlds may have beyond their usual faults.
    pub perils: Vec<Peril>,
}

/// Runs one seed after another, and examines each failure. Calls `progress` at intervals.
pub fn search(what: &Search, progress: impl Fn(&Tally, Duration) + Sync) -> (Tally, Vec<Failure>) {
    let began = Instant::now();
    let next = AtomicU64::new(what.start);
    let found = Mutex::new((Tally::default(), Vec::new()));
    let told = AtomicU64::new(0);
    let lock = || found.lock().unwrap_or_else(PoisonError::into_inner);
    let work = || {
        while lock().1.len() < what.failures_max {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if began.elapsed() >= what.time && seed - what.start >= what.worlds_min {
                break;
            }
            if let Ok(one) = run(seed, &Options::draw_with(seed, &what.perils)) {
                lock().0.add(&one);
            } else if let Err(failure) = examine(seed, &what.perils, what.shrink) {
                lock().1.push(*failure);
            }
            let minute = began.elapsed().as_secs() / PROGRESS_S;
            if told.fetch_max(minute, Ordering::Relaxed) < minute {
                let tally = lock().0.clone();
                progress(&tally, began.elapsed());
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..what.threads {
            scope.spawn(work);
        }
    });
    found.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// Shortens the `Debug` text of objects and leases.
fn brief(line: &str) -> String {
    let field = |text: &str, name: &str| -> String {
        let Some(at) = text.find(&format!(" {name}: ")) else { return String::new() };
        let rest = &text[at + name.len() + 3..];
        rest.chars().skip_while(|letter| *letter == '"').take_while(|letter| !"\" ,}".contains(*letter)).collect()
    };
    let mut text = line.to_owned();
    for (begin, fields) in [
        ("ObjectRef {", &["kind", "namespace", "name", "uid"][..]),
        ("LeaseId {", &["term", "number"]),
        ("OwnerReference {", &["kind", "name", "uid", "block_owner_deletion"]),
        ("GroupResource {", &["resource"]),
        ("Term {", &["number"]),
    ] {
        while let Some(at) = text.find(begin) {
            let Some(end) = text[at..].find(" }") else { break };
            let inner = &text[at..at + end + 2];
            let words: Vec<String> = fields.iter().map(|name| field(inner, name).chars().take(20).collect()).collect();
            let short = format!("<{}>", words.join(" "));
            text.replace_range(at..at + end + 2, &short);
        }
    }
    let text = text.replace("facts: Facts ", "").replace("controller: None, ", "").replace("attempt: ", "#");
    text.chars().take(700).collect()
}

impl Failure {
    /// Writes everything a person needs to see what went wrong.
    ///
    /// # Errors
    /// What the writer says.
    pub fn tell(&self, out: &mut impl Write) -> io::Result<()> {
        for line in &self.trace {
            writeln!(out, "{line}")?;
        }
        writeln!(out, "{:#?}", self.options)?;
        writeln!(out, "{}", self.why)?;
        writeln!(out, "replay with SEED={}", self.seed)
    }
}
