//! The recordings of `tests/corpus/recordings`, replayed: this version makes the decisions of the lists in `decisions`.
//!
//! A change of a list is a change of decisions. Write the lists anew with `BLESS=1`, and say in the commit why other
//! decisions are right.

use proto::convert::{Clock, LeaderLog};
use proto::decision::v1beta1::{DecisionEvent, Phase};
use recording::{End, Ended, Reader, Replay, Step};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The least number of recordings, so that the corpus is found.
const RECORDINGS_MIN: usize = 7;

fn corpus() -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/recordings");
    let files = fs::read_dir(directory).expect("tests/corpus/recordings").map(|file| file.expect("a file").path());
    let mut files: Vec<PathBuf> = files.filter(|file| file.extension().is_some_and(|of| of == "trace")).collect();
    files.sort();
    files
}

/// One line for each event of the decision log.
fn decisions(file: &Path) -> String {
    let mut replay = Replay::new(Reader::open(file).expect("a recording"));
    let (mut lines, mut log) = (String::new(), LeaderLog::default());
    while let Some(Step { at, events }) = replay.step() {
        let clock = Clock { now: at, calendar: SystemTime::UNIX_EPOCH + at.since_origin() };
        for event in &events {
            if let Some(event) = log.record(event, clock) {
                writeln!(lines, "{:.3} {}", at.since_origin().as_secs_f64(), words(&event)).expect("memory");
            }
        }
    }
    // The tests kill the programs that they do not need any more.
    let is_whole = matches!(replay.end(), Some(End::Ended(Ended::Stopped) | End::Open));
    assert!(is_whole, "{}: {:?}", file.display(), replay.end());
    lines
}

fn words(event: &DecisionEvent) -> String {
    let Some(target) = &event.target else {
        return event.system.as_ref().map_or("", |system| system.kind().as_str_name()).to_owned();
    };
    let (phase, action) = (event.phase().as_str_name(), event.kind().as_str_name());
    let about = format!("{phase} {action} {} {}/{} {}", target.kind, target.namespace, target.name, event.decision_id);
    if event.phase() != Phase::Proposed {
        return about;
    }
    // The id has the facts, and not what the decision makes of them.
    let policy = event.propagation_policy().as_str_name().trim_start_matches("PROPAGATION_POLICY_");
    let owners = event.reasons.iter().flat_map(|reason| &reason.related);
    let owners: Vec<&str> = owners.map(|owner| owner.uid.get(..8).unwrap_or(&owner.uid)).collect();
    format!("{about} {policy} {owners:?}")
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
