//! The story as lines: the objects that are deleted or stay, with the reasons.

use super::summary::{ActSummary, Summary, duration};
use super::witness::{Decision, Moment};
use super::world::Act;
use crate::counted::grouped;
use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Style};
use engine::evidence::Proof;
use engine::leader::Cause;
use engine::work::ActionKind;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{self, IsTerminal as _, Stdout, Write};
use std::time::Duration;

const BOLD: Style = Style::new().bold();
const DIM: Style = Style::new().dimmed();
const GONE: Style = AnsiColor::Red.on_default();
const KEPT: Style = AnsiColor::Green.on_default();
const FAILED: Style = AnsiColor::Red.on_default().bold();

/// Progress lines where there is no bar.
const PROGRESS_LINES: usize = 4;

/// The output of the story: stdout, or none.
pub(super) struct Narrator {
    out: Option<AutoStream<Stdout>>,
    bar: bool,
    /// Width of the column that names objects.
    column: usize,
}

/// The progress display of the big cascade.
pub(super) enum Progress {
    Bar(ProgressBar),
    /// The next line is printed at this number of objects.
    Lines {
        next: usize,
        total: usize,
    },
    Silent,
}

impl Narrator {
    /// Tells the story on stdout: with colours and a progress bar on a terminal, as plain lines otherwise and with
    /// `NO_COLOR`.
    pub(super) fn aloud() -> Narrator {
        let choice = AutoStream::choice(&io::stdout());
        let bar = choice != ColorChoice::Never && io::stdout().is_terminal() && io::stderr().is_terminal();
        Narrator { out: Some(AutoStream::new(io::stdout(), choice)), bar, column: 0 }
    }

    /// Tells nothing.
    pub(super) fn silent() -> Narrator {
        Narrator { out: None, bar: false, column: 0 }
    }

    fn say(&mut self, line: std::fmt::Arguments<'_>) -> io::Result<()> {
        match &mut self.out {
            Some(out) => {
                writeln!(out, "{line}")?;
                out.flush()
            }
            None => Ok(()),
        }
    }

    pub(super) fn opening(&mut self, executors: u32) -> io::Result<()> {
        self.say(format_args!(
            "{BOLD}Ownergraph demo{BOLD:#}: an API server in memory, a graph service and {executors} executors, all in this process."
        ))
    }

    /// The story has ended, and the console goes on.
    pub(super) fn stays(&mut self) -> io::Result<()> {
        self.say(format_args!("\nThe console goes on until Ctrl-C. The summary follows."))
    }

    pub(super) fn built(&mut self, built: usize, took: Duration) -> io::Result<()> {
        self.say(format_args!(
            "  {DIM}built{DIM:#}     {} objects over HTTP in {}",
            grouped(built),
            duration(took.as_secs_f64())
        ))
    }

    pub(super) fn ready(&mut self, kinds: usize, took: Duration) -> io::Result<()> {
        self.say(format_args!(
            "  {DIM}watching{DIM:#}  {kinds} kinds, listed and in step after {}",
            duration(took.as_secs_f64())
        ))
    }

    pub(super) fn act(&mut self, number: usize, act: &Act) -> io::Result<()> {
        let labels = act.deleted.iter().chain(&act.goes).chain(&act.changes).map(|thing| thing.to_string().len());
        self.column = labels.max().unwrap_or_default();
        self.say(format_args!("\n{BOLD}{number}. {}{BOLD:#}", act.title))?;
        self.say(format_args!("   {DIM}{}{DIM:#}", act.text))
    }

    /// Prints one moment as one line.
    pub(super) fn moment(&mut self, moment: &Moment, act: &Act) -> io::Result<()> {
        match moment {
            Moment::Gone { object, decisions } => {
                let mut reasons: Vec<String> = decisions.iter().map(reason).collect();
                if act.deleted.iter().any(|thing| thing.uid == object.uid.to_string()) {
                    reasons.insert(0, "this demo deleted it".to_owned());
                }
                self.line(GONE, "gone", &object.to_string(), &reasons.join("; "))
            }
            Moment::Changed { object, decisions } => {
                let reasons: Vec<String> = decisions.iter().map(reason).collect();
                self.line(KEPT, "kept", &object.to_string(), &reasons.join("; "))
            }
            Moment::Prevented { object, owner } => {
                self.line(KEPT, "kept", &object.to_string(), &format!("{owner} was found alive before the deletion"))
            }
        }
    }

    fn line(&mut self, style: Style, word: &str, object: &str, why: &str) -> io::Result<()> {
        let column = self.column;
        self.say(format_args!("   {style}{word}{style:#}  {object:<column$}  {DIM}{why}{DIM:#}"))
    }

    pub(super) fn act_done(&mut self, act: &ActSummary, proofs: u64) -> io::Result<()> {
        let mut text = format!("{} collected", grouped(act.collected));
        if act.changed > 0 {
            text.push_str(&format!(", {} changed", act.changed));
        }
        text.push_str(&format!(" in {}: {} requests", duration(act.seconds), grouped(act.requests)));
        if proofs > 0 {
            text.push_str(&format!(", {proofs} {} of absence", if proofs == 1 { "proof" } else { "proofs" }));
        }
        self.say(format_args!("   {BOLD}{text}{BOLD:#}"))
    }

    /// Starts the progress display of a cascade of `total` objects.
    pub(super) fn progress(&self, total: usize) -> Progress {
        if self.out.is_none() {
            return Progress::Silent;
        }
        if !self.bar {
            return Progress::Lines { next: step(total), total };
        }
        let length = u64::try_from(total).unwrap_or(u64::MAX);
        let bar = ProgressBar::with_draw_target(Some(length), ProgressDrawTarget::stderr());
        let style = ProgressStyle::with_template("   {bar:40.red} {human_pos} of {human_len} gone, {per_sec}");
        bar.set_style(style.expect("the template is a constant and well formed"));
        Progress::Bar(bar)
    }

    pub(super) fn advance(&mut self, progress: &mut Progress, gone: usize) -> io::Result<()> {
        match progress {
            Progress::Bar(bar) => bar.set_position(u64::try_from(gone).unwrap_or(u64::MAX)),
            Progress::Lines { next, total } => {
                if gone >= *next {
                    // The last line is printed exactly once.
                    *next = if gone >= *total { usize::MAX } else { (gone + step(*total)).min(*total) };
                    self.say(format_args!("   {} of {} gone", grouped(gone), grouped(*total)))?;
                }
            }
            Progress::Silent => {}
        }
        Ok(())
    }

    /// The summary, as a table and a few sentences.
    pub(super) fn summary(&mut self, summary: &Summary) -> io::Result<()> {
        self.say(format_args!("\n{BOLD}Summary{BOLD:#}"))?;
        if let Some(out) = &mut self.out {
            summary.write_table(out)?;
        }
        self.say(format_args!(
            "  {DIM}Before a dependent is deleted for a waiting owner, that owner is read; several dependents share one read.{DIM:#}"
        ))?;
        self.say(format_args!("\n{BOLD}Kept, and why{BOLD:#}"))?;
        for kept in &summary.kept_because {
            let more = kept.count - kept.objects.len();
            let more = if more > 0 { format!(" and {} more", grouped(more)) } else { String::new() };
            self.say(format_args!("  {KEPT}{}{more}{KEPT:#}: {}", kept.objects.join(", "), kept.why))?;
        }
        self.say(format_args!(
            "\n{} objects collected, {} changed, {} kept: {:.2} requests per object and {} lists, {} objects/s, {} in all.",
            grouped(summary.collected),
            grouped(summary.changed),
            grouped(summary.kept),
            summary.requests_per_object,
            summary.lists,
            grouped(summary.objects_per_second.round() as u64),
            duration(summary.seconds),
        ))?;
        match summary.problems.as_slice() {
            [] => self.say(format_args!(
                "{KEPT}Checked{KEPT:#} at the API server: every object to collect is gone, and every other object has exactly the expected references."
            )),
            problems => {
                for problem in problems.iter().take(PROBLEMS_TOLD) {
                    self.say(format_args!("{FAILED}Wrong{FAILED:#}: {problem}"))?;
                }
                Ok(())
            }
        }
    }
}

/// Maximum number of problems in the list.
const PROBLEMS_TOLD: usize = 10;

fn step(total: usize) -> usize {
    total.div_ceil(PROGRESS_LINES).max(1)
}

/// The reason of a decision, as a clause.
fn reason(decision: &Decision) -> String {
    let causes: Vec<String> = decision.causes.iter().map(|cause| words(cause, decision.action)).collect();
    causes.join(", ")
}

fn words(cause: &Cause, action: ActionKind) -> String {
    let drops = action == ActionKind::RemoveOwnerReferences;
    match cause {
        Cause::OwnerAbsent { kind, name, proof, .. } if drops => {
            format!("loses the reference to {kind} {name}, which is gone: {}", evidence(proof))
        }
        Cause::OwnerAbsent { kind, name, proof, .. } => format!("owner {kind} {name} is gone: {}", evidence(proof)),
        Cause::OwnerWaiting { kind, name, .. } if drops => {
            format!("loses the reference to {kind} {name}, which waits for it")
        }
        Cause::OwnerWaiting { kind, name, .. } => format!("owner {kind} {name} waits for its deletion"),
        Cause::OwnerOrphans { kind, name, .. } => {
            format!("loses the reference to {kind} {name}, which orphans its dependents")
        }
        Cause::KeptBy { kind, name, .. } => format!("{kind} {name} still owns it"),
        Cause::NoBlockingDependents => "no dependent that it waited for is left".to_owned(),
        Cause::NoDependents => "every dependent has lost the reference to it".to_owned(),
        Cause::Cycle => "it was in a cycle of owners that wait for each other".to_owned(),
    }
}

fn evidence(proof: &Proof) -> String {
    match proof {
        Proof::WatchDeleted { resource_version } => format!("DELETED seen at version {resource_version}"),
        Proof::Listed { resource_version } => format!("a consistent list at version {resource_version} lacks it"),
        Proof::TypeEmptied { .. } => "its definition says that all instances are deleted".to_owned(),
        Proof::ReadTwice => "reads two minutes apart did not find it".to_owned(),
    }
}
