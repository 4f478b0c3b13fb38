//! Exports of bundles from a process that records.

use super::*;
use crate::metrics::recording::RecordingMetrics;
use crate::recorder::{Recorder, Settings};
use proto::admin::v1beta1::export_bundle_response::{Header, Part};
use recording::{End, Ended, Names, Reader};
use runtime::clock::Clock;
use runtime::metrics::Book;
use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;
use std::time::SystemTime;

const NO_LIMIT: u64 = u64::MAX;

type Parts = BoxStream<'static, Result<ExportBundleResponse, Status>>;

fn begin(directory: &Path, max: u64) -> Recorder {
    let mut registry = prometheus_client::registry::Registry::default();
    let metrics = RecordingMetrics::register(&mut Book::new(&mut registry));
    let settings = Settings { directory: directory.to_owned(), max, names: Names::Plain };
    Recorder::start(&settings, (&config(Mode::Observe), 7), Clock::start(), metrics).unwrap()
}

/// A recording of some rounds in a directory, which has ended or is still written.
async fn recorder(directory: &Path) -> Recorder {
    let mut recorder = begin(directory, 1 << 30);
    for second in 1..=3 {
        recorder.tick();
        recorder = recorder.round(Time::from_origin(Duration::from_secs(second)), None).await.unwrap();
    }
    recorder
}

fn recording_world(recorder: Option<&Recorder>) -> World {
    let leader = Leader::new(config(Mode::Observe), 7);
    let (leadership, known) = watch::channel(Leadership::default());
    let mut shared = shared(leader, DecisionLog::in_memory(), known);
    Arc::get_mut(&mut shared).unwrap().recorded = recorder.map(Recorder::recorded);
    serving(shared, leadership)
}

async fn export(world: &World, max_recording_bytes: u64) -> Result<Parts, Status> {
    let request = Request::new(ExportBundleRequest { max_recording_bytes });
    world.service.export_bundle(request).await.map(Response::into_inner)
}

/// The header, and the files with their data.
async fn whole(mut parts: Parts) -> Result<(Header, BTreeMap<String, Vec<u8>>), Status> {
    let Some(Part::Header(header)) = parts.next().await.unwrap()?.part else { panic!("the header is first") };
    let (mut files, mut sizes, mut name) = (BTreeMap::new(), BTreeMap::new(), String::new());
    while let Some(part) = parts.next().await {
        match part?.part {
            Some(Part::File(file)) => {
                name = file.name;
                sizes.insert(name.clone(), file.size_bytes);
                files.insert(name.clone(), Vec::new());
            }
            Some(Part::Data(data)) => {
                assert!(data.len() <= 256 * 1024);
                files.get_mut(&name).unwrap().extend(data);
            }
            part => panic!("{part:?}"),
        }
    }
    assert_eq!(sizes, files.iter().map(|(name, data)| (name.clone(), data.len() as u64)).collect());
    Ok((header, files))
}

#[tokio::test]
async fn a_bundle_has_metrics_configuration_and_the_whole_recording() {
    let directory = tempfile::tempdir().unwrap();
    let recorder = recorder(directory.path()).await;
    let world = recording_world(Some(&recorder));
    recorder.stop().await;
    let (header, files) = whole(export(&world, NO_LIMIT).await.unwrap()).await.unwrap();
    let said = header.recording.unwrap();
    assert!(said.included && !said.pseudonyms && said.ended.is_empty() && header.version == VERSION);
    assert_eq!(said.directory, directory.path().display().to_string());
    assert_eq!(files["configuration.json"], b"{}");
    assert!(files["metrics.txt"].ends_with(b"# EOF\n"));
    let recorded = &files[&format!("recording/ogr-{}-00000.trace", said.name)];
    assert_eq!(recorded.len() as u64, said.size_bytes);
    let mut reader = Reader::of_bytes(recorded.clone()).unwrap();
    assert_eq!((std::iter::from_fn(|| reader.round()).count(), reader.end()), (3, Some(&End::Ended(Ended::Stopped))));
}

#[tokio::test]
async fn a_bundle_says_when_and_why_its_recording_has_ended() {
    let directory = tempfile::tempdir().unwrap();
    let recorder = begin(directory.path(), 1);
    let world = recording_world(Some(&recorder));
    let mut recording = Some(recorder);
    for second in 1..1000 {
        let Some(mut recorder) = recording.take() else { break };
        recorder.tick();
        recording = recorder.round(Time::from_origin(Duration::from_secs(second)), None).await;
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(recording.is_none(), "it is full");
    let (header, files) = whole(export(&world, NO_LIMIT).await.unwrap()).await.unwrap();
    let said = header.recording.unwrap();
    assert!(said.included);
    assert_eq!(said.ended, "it has the size that --record-max allows");
    let mut reader = Reader::of_bytes(files.last_key_value().unwrap().1.clone()).unwrap();
    let last = std::iter::from_fn(|| reader.round()).last().unwrap().at;
    let origin = SystemTime::UNIX_EPOCH + Duration::from_nanos(reader.header().origin);
    assert_eq!(said.last_time, Some((origin + last.since_origin()).into()));
}

#[tokio::test]
async fn what_is_still_being_written_is_read_up_to_its_last_whole_block() {
    let directory = tempfile::tempdir().unwrap();
    let recorder = recorder(directory.path()).await;
    let world = recording_world(Some(&recorder));
    let (header, files) = whole(export(&world, NO_LIMIT).await.unwrap()).await.unwrap();
    let recorded = files[&format!("recording/ogr-{}-00000.trace", header.recording.unwrap().name)].clone();
    // The half of a block, as if the recorder were writing it.
    let file = std::fs::read_dir(directory.path()).unwrap().next().unwrap().unwrap().path();
    std::fs::OpenOptions::new().append(true).open(file).map(|mut file| file.write_all(&[1; 7])).unwrap().unwrap();
    let (_, again) = whole(export(&world, NO_LIMIT).await.unwrap()).await.unwrap();
    for recorded in [&recorded, again.last_key_value().unwrap().1] {
        let mut reader = Reader::of_bytes(recorded.clone()).unwrap();
        while reader.round().is_some() {}
        assert_eq!(reader.end(), Some(&End::Open));
    }
    recorder.stop().await;
}

#[tokio::test]
async fn a_recording_that_is_too_large_or_absent_is_left_out() {
    let directory = tempfile::tempdir().unwrap();
    let recorder = recorder(directory.path()).await;
    let world = recording_world(Some(&recorder));
    recorder.stop().await;
    let (header, files) = whole(export(&world, 9).await.unwrap()).await.unwrap();
    let said = header.recording.unwrap();
    assert!(!said.included && said.size_bytes > 9 && files.len() == 2, "{said:?}");
    let (header, files) = whole(export(&recording_world(None), NO_LIMIT).await.unwrap()).await.unwrap();
    assert!(header.recording.is_none() && files.len() == 2);
}

#[tokio::test]
async fn a_recording_that_cannot_be_read_is_told_with_its_file() {
    let directory = tempfile::tempdir().unwrap();
    let recorder = recorder(directory.path()).await;
    let world = recording_world(Some(&recorder));
    recorder.stop().await;
    let file = std::fs::read_dir(directory.path()).unwrap().next().unwrap().unwrap().path();
    std::fs::remove_file(&file).unwrap();
    let (header, files) = whole(export(&world, NO_LIMIT).await.unwrap()).await.unwrap();
    let said = header.recording.unwrap();
    assert!(!said.included && said.problem.starts_with(&file.display().to_string()) && files.len() == 2, "{said:?}");
    // The read of the file fails, not its opening.
    std::fs::create_dir(&file).unwrap();
    let failed = whole(export(&world, NO_LIMIT).await.unwrap()).await.unwrap_err();
    assert_eq!((failed.code(), reason(&failed)), (tonic::Code::Unavailable, "CALL_FAILED".to_owned()));
    assert!(failed.message().contains(&file.display().to_string()), "{}", failed.message());
}

#[tokio::test]
async fn a_second_export_is_refused_until_the_first_one_has_ended() {
    let world = recording_world(None);
    let first = export(&world, 0).await.unwrap();
    let refused = export(&world, 0).await.err().unwrap();
    assert_eq!((refused.code(), reason(&refused)), (tonic::Code::ResourceExhausted, "LIMIT_EXCEEDED".to_owned()));
    assert_eq!(refused.message(), "this replica already exports a bundle; call again when that has ended");
    // A reader that leaves ends its export.
    drop(first);
    let mut parts = loop {
        match export(&world, 0).await {
            Ok(parts) => break parts,
            Err(_) => tokio::task::yield_now().await,
        }
    };
    assert!(parts.next().await.unwrap().is_ok());
}
