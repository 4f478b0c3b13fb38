use super::archive::{RECORDING, Trace, unpack};
use super::*;
use crate::args::Args;
use clap::FromArgMatches as _;
use flate2::write::GzEncoder;
use proto::admin::v1beta1::GetStatusResponse;
use proto::admin::v1beta1::export_bundle_response::Recording;
use tar::{EntryType, Header};

const SEGMENT: &str = "recording/ogr-20261126T090521939Z-00000.trace";

fn now() -> Timestamp {
    "2026-11-26T09:05:21.7Z".parse().unwrap()
}

/// An archive with one entry, whose name and size need not be true.
fn forged(kind: EntryType, name: &str, size: u64) -> Vec<u8> {
    let mut header = Header::new_gnu();
    let place = &mut header.as_old_mut().name;
    place[..name.len()].copy_from_slice(name.as_bytes());
    header.set_entry_type(kind);
    header.set_size(size);
    header.set_cksum();
    let mut to = GzEncoder::new(Vec::new(), flate2::Compression::fast());
    to.write_all(header.as_bytes()).and_then(|()| to.write_all(&[0; 2048])).unwrap();
    to.finish().unwrap()
}

fn refusal(archive: &[u8]) -> String {
    let directory = tempfile::tempdir().unwrap();
    let refused = unpack(archive, directory.path()).unwrap_err();
    format!("{refused:#}")
}

#[test]
fn a_bundle_is_named_by_its_time_and_never_overwrites_a_file() {
    assert_eq!(default_name(now()), Path::new("ownergraph-bundle-20261126T090521Z.tar.gz"));
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("bundle.tar.gz");
    let part = directory.path().join("bundle.tar.gz.part");
    let target = Target::create(path.clone()).unwrap();
    assert!(part.exists() && !path.exists(), "a bundle that is not whole has another name");
    let second = Target::create(path.clone()).err().unwrap().to_string();
    assert!(second.contains("bundle.tar.gz.part exists and is not overwritten"), "{second}");
    drop(target);
    assert!(!part.exists() && !path.exists(), "a bundle that is not whole is removed");
    assert_eq!(Target::create(path.clone()).unwrap().keep().unwrap(), path.display().to_string());
    assert!(path.exists() && !part.exists());
    let refused = Target::create(path.clone()).err().unwrap().to_string();
    assert_eq!(refused, format!("{} exists and is not overwritten: name another file, or remove it", path.display()));
    assert!(path.exists(), "the file that is there stays");
    fs::remove_file(&path).unwrap();
    let target = Target::create(path.clone()).unwrap();
    fs::write(&path, "another").unwrap();
    let refused = target.keep().unwrap_err().to_string();
    assert_eq!(
        refused,
        format!("{} was created meanwhile and is not overwritten; the bundle is {}", path.display(), part.display())
    );
    assert_eq!((fs::read(&path).unwrap(), part.exists()), (b"another".to_vec(), true));
    let nowhere = Target::create(directory.path().join("no/bundle")).err().unwrap().to_string();
    assert!(nowhere.contains("no/bundle.part cannot be created"), "{nowhere}");
    let stdout = Target::create(PathBuf::from("-")).unwrap();
    assert!(stdout.part.is_none());
    assert_eq!(stdout.keep().unwrap(), "standard output");
}

#[test]
fn the_file_is_an_optional_value() {
    let bundle = |words: &[&str]| {
        let words = ["ownergraph", "export"].iter().chain(words);
        let found = crate::args::command().try_get_matches_from(words).map_err(|error| error.to_string())?;
        let command = Args::from_arg_matches(&found).unwrap().command;
        let crate::args::Command::Ask(command) = command else { panic!() };
        let crate::kubectl::flags::Command::Export(flags) = *command else { panic!() };
        Ok::<_, String>((flags.bundle, flags.max_recording.as_u64()))
    };
    assert_eq!(bundle(&[]), Ok((None, 256 << 20)));
    assert_eq!(bundle(&["--bundle"]), Ok((Some(None), 256 << 20)));
    assert_eq!(bundle(&["--bundle", "--max-recording", "1GiB"]), Ok((Some(None), 1 << 30)));
    assert_eq!(bundle(&["--bundle", "-"]), Ok((Some(Some(PathBuf::from("-"))), 256 << 20)));
    assert_eq!(bundle(&["--bundle", "a.tar.gz"]), Ok((Some(Some(PathBuf::from("a.tar.gz"))), 256 << 20)));
    for wrong in [
        &["--bundle", "--max-recording", "5GiB"][..],
        &["--bundle", "--max-recording", "much"],
        &["--max-recording", "1GiB"],
        &["--bundle", "--snapshot", "x"],
        &["--bundle", "--direct"],
        &["--bundle", "-n", "shop"],
        &["--bundle", "-A"],
        &["--bundle", "-o", "json"],
    ] {
        assert!(bundle(wrong).is_err(), "{wrong:?}");
    }
}

#[test]
fn the_last_line_has_the_name_the_size_and_what_is_missing() {
    assert_eq!(last_line("b.tar.gz", 2048, &[]), "b.tar.gz: 2.0 KiB, nothing is missing");
    let missing = |what: &str| Missing { what: what.to_owned(), why: String::new() };
    assert_eq!(
        last_line("b.tar.gz", 2048, &[missing("metrics.txt"), missing("recording/")]),
        "b.tar.gz: 2.0 KiB, without metrics.txt, recording/; README.txt in it says why"
    );
}

#[test]
fn the_readme_says_what_is_there_and_what_is_missing() {
    let status = GetStatusResponse { version: "0.2.0".to_owned(), ..Default::default() };
    let mut about = About::new(now(), status);
    about.lacks("metrics.txt", "no right\nto bundles".to_owned());
    let files = ["status.yaml".to_owned(), SEGMENT.to_owned()];
    let text = about.text(&files);
    for expected in ["taken    2026-11-26T09:05:21Z\n", "service  0.2.0 ", "\nstatus.yaml  ", "\nrecording/  "] {
        assert!(text.contains(expected), "{expected:?} in {text}");
    }
    assert!(text.contains("Missing:\nmetrics.txt         no right") && !text.contains("\nto bundles"), "{text}");
    assert!(text.contains("with --record-names hash") && !text.contains("decisions.jsonl     the last"), "{text}");
    about.recording = Some(Recording { pseudonyms: true, ..Default::default() });
    about.missing.clear();
    let text = about.text(&files);
    assert!(text.contains("The recording has pseudonyms.") && text.contains("Missing:\nnothing\n"), "{text}");
}

#[test]
fn the_recording_of_a_bundle_is_unpacked_for_a_replay() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("bundle.tar.gz");
    let mut archive = Archive::new(File::create(&path).unwrap(), 7);
    archive.add("status.yaml", b"kind: CollectorStatus\n").unwrap();
    archive.add(SEGMENT, b"OGTRACE").unwrap();
    assert_eq!(archive.files(), ["status.yaml", SEGMENT]);
    assert_eq!(archive.finish().unwrap(), fs::metadata(&path).unwrap().len());
    let trace = Trace::open(&path).unwrap();
    let unpacked = trace.path.clone();
    let files: Vec<_> = fs::read_dir(&unpacked).unwrap().map(|file| file.unwrap().file_name()).collect();
    assert_eq!(files, [SEGMENT.strip_prefix(RECORDING).unwrap()]);
    assert_eq!(fs::read(unpacked.join(&files[0])).unwrap(), b"OGTRACE");
    drop(trace);
    assert!(!unpacked.exists(), "the unpacked files are removed");
    assert_eq!(Trace::open(directory.path()).unwrap().path, directory.path());
}

#[test]
fn an_archive_that_is_no_bundle_is_refused() {
    for (kind, name, size, expected) in [
        (EntryType::Regular, "../ogr-a-00000.trace", 0, "leads out of the archive"),
        (EntryType::Regular, "recording/../../a", 0, "leads out of the archive"),
        (EntryType::Regular, "/recording/ogr-a-00000.trace", 0, "leads out of the archive"),
        (EntryType::Regular, "recording\\..\\a", 0, "leads out of the archive"),
        (EntryType::Directory, "../a", 0, "leads out of the archive"),
        (EntryType::Symlink, SEGMENT, 0, "is a link"),
        (EntryType::Link, SEGMENT, 0, "is a link"),
        (EntryType::GNULongName, "././@LongLink", 300, "is a link or another entry"),
        (EntryType::Char, "recording/null", 0, "is a link or another entry"),
        (EntryType::Regular, "recording/deep/ogr-a-00000.trace", 0, "is not the name of a file of a recording"),
        (EntryType::Regular, "recording/a.sh", 0, "is not the name of a file of a recording"),
        (EntryType::Regular, SEGMENT, 1 << 29, "is larger than a file of a recording"),
        (EntryType::Regular, "status.yaml", 1 << 33, "more than 5 GiB"),
        (EntryType::Regular, SEGMENT, 1 << 20, "the archive ends in"),
        (EntryType::Directory, "recording/", 0, "the archive has no recording"),
    ] {
        let said = refusal(&forged(kind, name, size));
        assert!(said.contains(expected), "{name}: {said}");
    }
    assert!(refusal(&forged(EntryType::Regular, SEGMENT, 0)[..40]).contains("the archive is damaged"));
    assert!(!refusal(b"nothing of the kind").is_empty());
}

#[test]
fn an_older_service_is_named_as_the_cause() {
    assert!(received::in_words(&tonic::Status::unimplemented("")).contains("upgrade it"));
    assert_eq!(received::in_words(&tonic::Status::permission_denied("no right")), "no right");
}

#[test]
fn a_recording_that_is_too_large_is_told_with_its_place_and_the_way_to_it() {
    let told = |size_bytes: u64| {
        let (name, directory) = ("20261126T090521939Z".to_owned(), "/recordings".to_owned());
        received::too_large(&Recording { name, directory, size_bytes, ..Default::default() }, "graph-0", 256 << 20)
    };
    let (large, larger) = (told(1 << 30), told(4 << 30));
    assert!(large.starts_with("the recording 20261126T090521939Z in /recordings of replica graph-0 has 1.0 GiB, more than --max-recording 256.0 MiB"), "{large}");
    assert!(large.ends_with("ownergraph export --bundle --max-recording 1088MiB"), "{large}");
    assert!(
        larger.ends_with("copy the files ogr-20261126T090521939Z-*.trace from the volume of that directory"),
        "{larger}"
    );
}
