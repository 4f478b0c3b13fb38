//! The recordings of `tests/corpus/recordings`, replayed: this version makes the decisions of the lists in `decisions`.
//! Together they have every kind of input.
//!
//! A change of a list is a change of decisions. Write the lists again with `BLESS=1`, and say in the commit why other
//! decisions are right.

use engine::leader::Input;
use proto::convert::{self, Clock, LeaderLog};
use proto::decision::v1beta1::{DecisionEvent, GetParityResponse, Phase};
use recording::{Call, End, Ended, Reader, Replay, Step};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The least number of recordings, so that the corpus is found.
const RECORDINGS_MIN: usize = 10;

/// The kinds of inputs. The compiler finds one that is missing here, and a test one that no recording has.
macro_rules! kinds {
    ($($kind:ident)*) => {
        const KINDS: &[&str] = &[$(stringify!($kind)),*];

        fn kind(input: &Input) -> &'static str {
            match input {
                $(Input::$kind { .. } => stringify!($kind),)*
            }
        }
    };
}

kinds! {
    KindServed KindUnserved Undiscovered KindEmptied
    ListBegun Listed ListEnded ListFailed Seen Deleted Bookmark WatchLost WatchResumed Unusable
    Probed
    GuardsListed GuardsFollowed GuardsLost GuardSeen GuardGone GuardsRead
    GateAnswered GateReopened GateInvalidated GateNeedsTime
    Audited ComparedBefore
    Message StreamClosed
    Wrote TermGained OpenAtTermStart TermLost Withhold Stop
}

/// The directory of the recordings.
pub(crate) fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/recordings")
}

fn corpus() -> Vec<PathBuf> {
    let files = fs::read_dir(directory()).expect("tests/corpus/recordings").map(|file| file.expect("a file").path());
    let mut files: Vec<PathBuf> = files.filter(|file| file.extension().is_some_and(|of| of == "trace")).collect();
    files.sort();
    files
}

/// One line for each event of the decision log. In mode observe, the last one has the numbers of the comparison.
pub(crate) fn decisions(file: &Path) -> String {
    let mut replay = Replay::new(Reader::open(file).expect("a recording"));
    let (mut lines, mut log, mut compared) = (String::new(), LeaderLog::default(), None);
    while let Some(Step { at, events }) = replay.step() {
        let clock = Clock { now: at, calendar: SystemTime::UNIX_EPOCH + at.since_origin() };
        for event in &events {
            if let Some(event) = log.record(event, clock) {
                writeln!(lines, "{:.3} {}", at.since_origin().as_secs_f64(), words(&event)).expect("memory");
            }
        }
        // A leader that stops compares nothing any more.
        compared = replay.queries().parity(None).map(|view| convert::parity(view, clock)).or(compared);
    }
    if let Some(compared) = compared {
        writeln!(lines, "{}", numbers(&compared)).expect("memory");
    }
    // The tests kill the programs that they do not need any more.
    let is_whole = matches!(replay.end(), Some(End::Ended(Ended::Stopped) | End::Open));
    assert!(is_whole, "{}: {:?}", file.display(), replay.end());
    lines
}

fn words(event: &DecisionEvent) -> String {
    let Some(target) = &event.target else {
        let Some(system) = &event.system else { return String::new() };
        let kind = system.kind().as_str_name();
        return system.parity.as_ref().map_or(kind.to_owned(), |compared| format!("{kind} {}", numbers(compared)));
    };
    let (phase, action) = (event.phase().as_str_name(), event.kind().as_str_name());
    let about = format!("{phase} {action} {} {}/{} {}", target.kind, target.namespace, target.name, event.decision_id);
    if let Some(found) = &event.disagreement {
        let (outcome, class) = (found.outcome().as_str_name(), found.class().as_str_name());
        return format!("{about}{outcome} {class} {} {:?}", found.decided().as_str_name(), found.user);
    }
    if event.phase() != Phase::Proposed {
        return about;
    }
    // The id has the facts, and not what the decision makes of them.
    let policy = event.propagation_policy().as_str_name().trim_start_matches("PROPAGATION_POLICY_");
    let owners = event.reasons.iter().flat_map(|reason| &reason.related);
    let owners: Vec<&str> = owners.map(|owner| owner.uid.get(..8).unwrap_or(&owner.uid)).collect();
    format!("{about} {policy} {owners:?}")
}

/// The numbers of the comparison with another collector.
fn numbers(compared: &GetParityResponse) -> String {
    let GetParityResponse { agreed, theirs_first, late, unattributed, withdrawn, without_request, .. } = compared;
    let of_class = compared.classes.iter().map(|of| {
        let class = of.class().as_str_name();
        format!(", {class} {} ours only, {} theirs only", of.ours_only, of.theirs_only)
    });
    format!(
        "{agreed} agreed, {theirs_first} theirs first, {late} late, {unattributed} unattributed, \
         {withdrawn} withdrawn, {without_request} without request, {} open, {} unsettled{}",
        compared.open,
        compared.unsettled,
        of_class.collect::<String>()
    )
}

#[test]
fn recordings_of_the_corpus_give_the_decisions_of_their_lists() {
    let files = corpus();
    assert!(files.len() >= RECORDINGS_MIN, "{files:?}");
    let lists = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sim/decisions");
    let bless = std::env::var_os("BLESS").is_some_and(|bless| bless == "1");
    let mut changed = Vec::new();
    for file in files {
        let list = lists.join(file.file_name().expect("a name")).with_extension("txt");
        let now = decisions(&file);
        if bless {
            fs::write(&list, now).expect("the list is written");
            continue;
        }
        let before = fs::read_to_string(&list).unwrap_or_else(|_| panic!("{} is there", list.display()));
        let differs = before.lines().zip(now.lines()).find(|(before, now)| before != now);
        if before != now {
            let lines = (before.lines().count(), now.lines().count());
            changed.push(format!("{}: {lines:?} lines, the first other one is {differs:?}", list.display()));
        }
    }
    assert!(changed.is_empty(), "this version decides otherwise; BLESS=1 writes the lists:\n{}", changed.join("\n"));
}

#[test]
fn recordings_of_the_corpus_have_every_kind_of_input() {
    let mut missing: BTreeSet<&str> = KINDS.iter().copied().collect();
    for file in corpus() {
        let mut reader = Reader::open(&file).expect("a recording");
        while let Some(round) = reader.round() {
            for call in &round.calls {
                if let Call::Input(input) = call {
                    missing.remove(kind(input));
                }
            }
        }
    }
    assert!(missing.is_empty(), "no recording has an input of the kind {missing:?}");
}
