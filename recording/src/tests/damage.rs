//! Files that were cut, changed or forged.

use super::*;
use crate::fuzzing::file_of;
use crate::lists::ELEMENTS_MAX;
use std::io::Write as _;
use std::path::PathBuf;

fn first(directory: &TempDir) -> PathBuf {
    segment(directory.path(), &header().recording, 0)
}

/// A file of one block with these rounds.
fn file_of_rounds(rounds: &[Round]) -> Vec<u8> {
    let mut raw = Vec::new();
    rmp_serde::encode::write_named(&mut raw, &Written::Header(&header())).unwrap();
    for round in rounds {
        rmp_serde::encode::write_named(&mut raw, &Written::Round(round)).unwrap();
    }
    file_of(&raw)
}

/// The begin of the last block of a file.
fn last_block(file: &[u8]) -> usize {
    let (mut last, mut at) = (MAGIC.len(), MAGIC.len());
    while at < file.len() {
        last = at;
        at += HEAD + u32::from_le_bytes(file[at..at + 4].try_into().unwrap()) as usize;
    }
    last
}

/// A recording in files of several blocks.
fn in_blocks(rounds: &[Round]) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    let mut writer = Writer::create(directory.path(), header(), Limits { segment: 2000, ..LIMITS }).unwrap();
    for (number, round) in rounds.iter().enumerate() {
        assert!(!writer.round(round).unwrap(), "full");
        if number % 20 == 0 {
            writer.flush().unwrap();
        }
    }
    writer.end(&Ended::Stopped).unwrap();
    directory
}

/// Draws numbers from a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end.max(1)
    }
}

#[test]
fn a_configuration_that_no_service_has_is_refused() {
    let with = |change: fn(&mut Header)| {
        let mut header = header();
        change(&mut header);
        let mut raw = Vec::new();
        rmp_serde::encode::write_named(&mut raw, &Written::Header(&header)).unwrap();
        Reader::of_bytes(file_of(&raw)).map(drop).map_err(|error| error.to_string())
    };
    assert_eq!(with(|_| {}), Ok(()));
    let changes: [fn(&mut Header); 4] = [
        |header| header.config.heartbeat_interval = Duration::MAX,
        |header| header.config.session_ttl = Duration::MAX,
        |header| header.config.execution_limit = Duration::MAX,
        |header| header.config.stale_after = Duration::MAX,
    ];
    for change in changes {
        let refused = with(change).unwrap_err();
        assert!(refused.contains("a duration of more than a day"), "{refused}");
    }
}

#[test]
fn a_round_at_the_end_of_the_clock_is_refused() {
    let mut rounds = story(1);
    let honest = rounds.len();
    rounds.push(Round { at: Time::from_origin(Duration::MAX), calls: vec![Call::Tick], unfinished: None });
    let mut replay = Replay::new(Reader::of_bytes(file_of_rounds(&rounds)).unwrap());
    assert_eq!(std::iter::from_fn(|| replay.step()).count(), honest);
    let Some(End::Damaged(damage)) = replay.end() else { panic!("{:?}", replay.end()) };
    assert!(damage.why.contains("a time that no clock shows"), "{damage}");
}

#[test]
fn a_file_that_is_missing_between_others_is_a_damage() {
    let directory = write(&story(4000), Limits { segment: 4096, ..LIMITS });
    let numbers = || fs::read_dir(directory.path()).unwrap().count();
    assert!(numbers() > 3, "{}", numbers());
    fs::remove_file(segment(directory.path(), &header().recording, 1)).unwrap();
    let mut reader = Reader::open(directory.path()).unwrap();
    while reader.round().is_some() {}
    let Some(End::Damaged(damage)) = reader.end() else { panic!("{:?}", reader.end()) };
    assert!(damage.to_string().contains("-00001.trace at byte 0: the file is missing"), "{damage}");
}

#[test]
fn each_file_begins_with_its_header() {
    let directory = in_blocks(&story(500));
    let mut before = 0;
    for number in 0..fs::read_dir(directory.path()).unwrap().count() as u32 {
        let file = fs::read(segment(directory.path(), &header().recording, number)).unwrap();
        let length = file.len() as u64;
        let reader = Reader::of_bytes(file).unwrap_or_else(|error| panic!("file {number}: {error}"));
        assert_eq!((reader.header().segment, reader.header().before), (number, before));
        before += length;
    }
    assert!(before > 6000, "several files: {before}");
}

#[test]
fn a_file_that_was_cut_between_two_blocks_is_a_damage_if_another_file_follows() {
    let rounds = story(500);
    let directory = in_blocks(&rounds);
    let path = segment(directory.path(), &header().recording, 1);
    let whole = fs::read(&path).unwrap();
    let last = last_block(&whole);
    assert!(last_block(&whole[..last]) > MAGIC.len(), "the file has a header and at least two blocks");
    fs::write(&path, &whole[..last]).unwrap();
    let (read, end) = read(directory.path());
    assert!(!read.is_empty() && read == rounds[..read.len()], "nothing follows the gap");
    let End::Damaged(damage) = end else { panic!("{end:?}") };
    assert!(damage.to_string().contains("-00002.trace at byte 8: the file before it was cut or changed"), "{damage}");
}

#[test]
fn files_of_a_version_that_did_not_count_their_bytes_are_read() {
    let directory = tempfile::tempdir().unwrap();
    for number in 0..2 {
        let mut raw = Vec::new();
        let header = Header { segment: number, ..header() };
        rmp_serde::encode::write_named(&mut raw, &Written::Header(&header)).unwrap();
        fs::write(segment(directory.path(), &header.recording, number), file_of(&raw)).unwrap();
    }
    assert_eq!(read(directory.path()), (Vec::new(), End::Open));
}

#[test]
fn a_file_that_was_cut_is_read_up_to_the_cut() {
    let rounds = story(300);
    let directory = tempfile::tempdir().unwrap();
    let mut writer = Writer::create(directory.path(), header(), LIMITS).unwrap();
    for round in &rounds {
        writer.round(round).unwrap();
        writer.flush().unwrap();
    }
    writer.end(&Ended::Stopped).unwrap();
    let whole = fs::read(first(&directory)).unwrap();
    let mut most = 0;
    for length in (1..whole.len()).step_by(97) {
        fs::write(first(&directory), &whole[..length]).unwrap();
        let Ok(mut reader) = Reader::open(directory.path()) else {
            assert_eq!(most, 0, "the header is in a block of its own");
            continue;
        };
        let read: Vec<Round> = std::iter::from_fn(|| reader.round()).collect();
        assert_eq!(read, rounds[..read.len()]);
        assert!(read.len() >= most);
        most = read.len();
        match reader.end().unwrap() {
            End::Open => {}
            End::Damaged(damage) => assert!(damage.why.starts_with("the file ends in"), "{damage}"),
            End::Ended(end) => panic!("{end:?}"),
        }
    }
    assert!(most + 5 > rounds.len(), "{most}");
}

#[test]
fn a_changed_byte_is_found_and_named() {
    let rounds = story(200);
    let directory = write(&rounds, LIMITS);
    let whole = fs::read(first(&directory)).unwrap();
    for at in (8..whole.len()).step_by(13) {
        let mut changed = whole.clone();
        changed[at] ^= 0x10;
        fs::write(first(&directory), &changed).unwrap();
        let Ok(mut reader) = Reader::open(directory.path()) else { continue };
        while reader.round().is_some() {}
        let Some(End::Damaged(damage)) = reader.end() else { panic!("byte {at}: {:?}", reader.end()) };
        assert!(damage.to_string().contains(" at byte "), "{damage}");
    }
}

#[test]
fn other_files_are_refused_with_the_reason() {
    let directory = tempfile::tempdir().unwrap();
    let refused = |bytes: &[u8]| {
        fs::write(first(&directory), bytes).unwrap();
        Reader::open(directory.path()).unwrap_err().to_string()
    };
    assert!(refused(b"").contains("is not a recording"));
    assert!(refused(b"PK\x03\x04 and so on").contains("is not a recording"));
    assert!(refused(b"OGTRACE\x09").contains("version 9 of the format, and this program reads version 1"));
    assert!(refused(b"OGTRACE\x01").contains("the header is damaged"));
    assert!(refused(b"OGTRACE\x01\xff\xff\xff\xff\xff\xff\xff\xff\0\0\0\0").contains("larger than a block"));
    let nothing = tempfile::tempdir().unwrap();
    assert!(Reader::open(nothing.path()).unwrap_err().to_string().contains("has no recording"));
    let later = nothing.path().join("ogr-x-00002.trace");
    fs::write(&later, b"").unwrap();
    assert!(Reader::open(&later).unwrap_err().to_string().contains("is not the first file"));
}

/// Entries with a right checksum and wrong content must not harm the reader or the leader.
#[test]
fn forged_entries_harm_nothing() {
    let seed = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    writeln!(std::io::stderr(), "SEED={seed}").unwrap();
    let mut random = Random(seed);
    let mut raw = Vec::new();
    rmp_serde::encode::write_named(&mut raw, &Written::Header(&header())).unwrap();
    let head = raw.len();
    for round in story(40) {
        rmp_serde::encode::write_named(&mut raw, &Written::Round(&round)).unwrap();
    }
    let directory = tempfile::tempdir().unwrap();
    let mut replayed = 0;
    for number in 0..4_000 {
        let mut forged = raw.clone();
        // Some have changes in the header too.
        let head = if number % 4 == 0 { 0 } else { head };
        for _ in 0..=random.below(4) {
            let at = head + random.below(forged.len() - head);
            match random.below(4) {
                0 => forged[at] = forged[at].wrapping_add(1),
                1 => forged[at] = random.below(256) as u8,
                2 => drop(forged.remove(at)),
                _ => {
                    let other = head + random.below(forged.len() - head);
                    forged.swap(at, other);
                }
            }
        }
        fs::write(first(&directory), file_of(&forged)).unwrap();
        let Ok(reader) = Reader::open(directory.path()) else { continue };
        let mut replay = Replay::new(reader);
        while let Some(step) = replay.step() {
            replayed += 1 + step.events.len();
        }
    }
    assert!(replayed > 10_000, "{replayed}: most entries are readable");
}

#[test]
fn a_small_file_becomes_no_large_list() {
    // Each byte is a call without content.
    let round = Round { at: Time::ZERO, calls: vec![Call::Tick; CALLS_MAX + 1], unfinished: None };
    let mut reader = Reader::of_bytes(file_of_rounds(&[round])).unwrap();
    assert_eq!(reader.round(), None);
    let Some(End::Damaged(damage)) = reader.end() else { panic!("{:?}", reader.end()) };
    assert!(damage.why.contains("more than 100000 calls"), "{damage}");
}

#[test]
fn a_small_file_becomes_no_large_lists_within_its_inputs() {
    let seen = |finalizers: usize| {
        let mut object = object("o", 1, None);
        object.facts.finalizers = vec![Name::from("f"); finalizers].into();
        Call::Input(Input::Seen { collection: collection("things"), object })
    };
    let read = |elements: usize| {
        // Lists count together: the calls of the round, and the finalizers of two objects.
        let calls = vec![seen(1000), seen(elements - 1002)];
        let round = Round { at: Time::ZERO, calls, unfinished: None };
        let file = file_of_rounds(std::slice::from_ref(&round));
        assert!(file.len() < 10_000, "{}", file.len());
        let mut reader = Reader::of_bytes(file).unwrap();
        let is_read = reader.round().is_some_and(|read| read == round);
        assert!(reader.round().is_none());
        let mut writer = Writer::create(tempfile::tempdir().unwrap().path(), header(), LIMITS).unwrap();
        let written = writer.round(&round).map(drop).map_err(|error| error.to_string());
        (is_read, reader.end().cloned().unwrap(), written)
    };
    assert_eq!(read(ELEMENTS_MAX), (true, End::Open, Ok(())));
    let (is_read, end, written) = read(ELEMENTS_MAX + 1);
    assert!(!is_read);
    let End::Damaged(damage) = end else { panic!("{end:?}") };
    assert!(damage.why.contains("lists of more than 2097152 elements"), "{damage}");
    assert!(written.unwrap_err().contains("lists of more than 2097152 elements"));
}
