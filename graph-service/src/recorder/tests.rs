use super::*;
use engine::leader::{Mode, Policy};
use engine::work::Protocols;
use recording::{End, Reader};
use runtime::metrics::Book;
use std::path::Path;

fn config() -> Config {
    Config {
        mode: Mode::Observe,
        cluster_uid: "cluster".into(),
        endpoint: String::new(),
        session_ttl: Duration::from_secs(15),
        heartbeat_interval: Duration::from_secs(5),
        execution_limit: Duration::from_secs(60),
        stale_after: Duration::from_secs(60),
        policy: Policy::default(),
        protocols: Protocols::OURS,
    }
}

pub(crate) fn begin(directory: &Path, max: u64) -> anyhow::Result<Recorder> {
    let mut registry = prometheus_client::registry::Registry::default();
    let metrics = RecordingMetrics::register(&mut Book::new(&mut registry));
    let settings = Settings { directory: directory.to_owned(), max, names: Names::Plain };
    Recorder::start(&settings, (&config(), 7), Clock::start(), metrics)
}

fn at(second: u64) -> Time {
    Time::from_origin(Duration::from_secs(second))
}

/// The calls and the rest of each round, and the end.
fn read(directory: &Path) -> (Vec<(usize, Option<u32>)>, End) {
    let mut reader = Reader::open(directory).unwrap();
    let rounds = std::iter::from_fn(|| reader.round()).map(|round| (round.calls.len(), round.unfinished)).collect();
    (rounds, reader.end().cloned().unwrap())
}

#[tokio::test]
async fn a_round_without_calls_is_recorded_if_it_takes_what_the_last_one_left() {
    let directory = tempfile::tempdir().unwrap();
    let mut recorder = begin(directory.path(), 1 << 30).unwrap();
    for (second, unfinished) in [(1, Some(1024)), (2, Some(1024)), (3, None), (4, None)] {
        if second == 1 {
            recorder.input(&Input::Stop);
            recorder.tick();
        }
        recorder = recorder.round(at(second), unfinished).await.unwrap();
    }
    recorder.stop().await;
    let rounds = vec![(2, Some(1024)), (0, Some(1024)), (0, None)];
    assert_eq!(read(directory.path()), (rounds, End::Ended(Ended::Stopped)));
}

/// Goes on with ticks until the thread has ended.
async fn until_ended(recorder: Recorder) {
    let mut recorder = Some(recorder);
    for second in 0..1000 {
        let Some(mut running) = recorder.take() else { break };
        running.tick();
        recorder = running.round(at(second), None).await;
        tokio::time::sleep(LOOK_EVERY).await;
    }
    assert!(recorder.is_none(), "the thread has ended");
}

#[tokio::test]
async fn a_full_recording_ends_and_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let recorder = begin(directory.path(), 1).unwrap();
    let recorded = recorder.recorded();
    assert_eq!(recorded.written().ended, None);
    until_ended(recorder).await;
    assert_eq!(read(directory.path()).1, End::Ended(Ended::Full));
    assert_eq!(recorded.written().ended.unwrap(), "it has the size that --record-max allows");
    assert!(begin(Path::new("/proc/nowhere"), 1).is_err(), "no directory");
}

#[tokio::test]
async fn a_recording_that_cannot_be_written_ends_and_says_why() {
    let directory = tempfile::tempdir().unwrap();
    let mut recorder = begin(directory.path(), 1 << 30).unwrap();
    let recorded = recorder.recorded();
    recorder.input(&Input::TermLost { leader_endpoint: "x".repeat(65 << 20) });
    until_ended(recorder).await;
    let ended = recorded.written().ended.unwrap();
    assert!(ended.contains("is larger than a block may be"), "{ended}");
}

#[test]
fn only_an_error_of_the_system_is_blamed_on_the_disk() {
    let no_space = unwritten(&io::Error::from_raw_os_error(28));
    assert!(no_space.ends_with("; check the space of --record"), "{no_space}");
    let too_large = unwritten(&io::Error::other("a round is too large"));
    assert_eq!(too_large, "a round is too large; report this");
}
