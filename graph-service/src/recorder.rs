//! Writes the inputs of the leader to files, so that `ownergraph replay` makes the same decisions once more.
//!
//! The deciding task copies its inputs and sends them to a thread, which encodes, compresses and writes them.
//!
//! | What goes wrong | What follows |
//! |---|---|
//! | The directory cannot be written at the start | The service does not start |
//! | The files have half of the directory's maximum size | The recording ends, and says so in its last entry |
//! | The disk is slower than the inputs | The deciding task waits up to [`PATIENCE`] for room; then the recording ends |
//! | A file cannot be written | The recording ends, without a last entry |
//!
//! A recording never continues after a gap: what follows could not be replayed. The collector goes on in all cases. The
//! log, a metric and the bundles of the process say that the recording has ended.

use crate::metrics::recording::RecordingMetrics;
use engine::leader::{Config, Input};
use engine::time::Time;
use recording::{Call, Ended, Header, Limits, Names, Pseudonyms, Round, Writer};
use runtime::clock::Clock;
use runtime::version::VERSION;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};
use std::{fs, io};
use tokio::sync::watch;

#[cfg(test)]
pub(crate) mod tests;

/// Maximum number of rounds, and of their calls, that wait to be written.
const ROUNDS_MAX: usize = 1000;
const CALLS_MAX: usize = 100_000;
/// How long a round of the deciding task waits for room.
const PATIENCE: Duration = Duration::from_millis(50);
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// How long rounds gather for the thread. If each round woke the thread, it would take the processor from the deciding
/// task each time.
const GATHER_FOR: Duration = Duration::from_millis(10);
/// Longest wait for the files at the end.
const STOP_WITHIN: Duration = Duration::from_secs(2);
/// Entries are in a file after this time, also if they are few.
const FLUSH_EVERY: Duration = Duration::from_secs(1);
/// Maximum size of one file.
const SEGMENT_BYTES: u64 = 64 << 20;

/// Where and how to record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    pub directory: PathBuf,
    /// Bytes of all recordings in the directory.
    pub max: u64,
    pub names: Names,
}

/// The files of a recording, for readers while it is written.
#[derive(Clone, Debug)]
pub(crate) struct Recorded {
    pub(crate) directory: PathBuf,
    pub(crate) name: String,
    pub(crate) names: Names,
    written: watch::Receiver<Written>,
}

/// How far a recording is written.
#[derive(Clone, Debug)]
pub(crate) struct Written {
    /// Bytes of all files. They end with a whole block.
    pub(crate) bytes: u64,
    /// The time of the last round in these bytes.
    pub(crate) last: SystemTime,
    /// Why no further round follows, as a sentence. `None` while the process goes on to record.
    pub(crate) ended: Option<String>,
}

impl Recorded {
    pub(crate) fn written(&self) -> Written {
        self.written.borrow().clone()
    }

    /// The files in order, with these bytes in all. Blocks the thread.
    ///
    /// # Errors
    /// A file is missing or cannot be read.
    pub(crate) fn files(&self, bytes: u64) -> io::Result<Vec<(PathBuf, u64)>> {
        let mut left = bytes;
        let mut files = Vec::new();
        for number in 0.. {
            if left == 0 {
                break;
            }
            let path = recording::segment(&self.directory, &self.name, number);
            let metadata = fs::metadata(&path).map_err(|error| unread(&path, &error))?;
            let bytes = metadata.len().min(left);
            left -= bytes;
            files.push((path, bytes));
        }
        Ok(files)
    }
}

/// The error with the name of its file.
pub(crate) fn unread(path: &Path, error: &io::Error) -> io::Error {
    io::Error::other(format!("{}: {error}", path.display()))
}

/// The side of the deciding task.
#[derive(Debug)]
pub(crate) struct Recorder {
    rounds: SyncSender<Round>,
    /// Calls of rounds that wait to be written.
    waiting: Arc<AtomicUsize>,
    /// Inputs were lost after the rounds that wait.
    behind: Arc<AtomicBool>,
    thread: JoinHandle<()>,
    recorded: Recorded,
    /// The calls of this round.
    calls: Vec<Call>,
    /// The last round left effects. The next one takes them, also without a call.
    unfinished: bool,
}

impl Recorder {
    /// Begins a recording.
    ///
    /// # Errors
    /// The directory or the first file cannot be written, or the system has no random bytes.
    pub(crate) fn start(
        settings: &Settings,
        (config, seed): (&Config, u64),
        clock: Clock,
        metrics: RecordingMetrics,
    ) -> anyhow::Result<Recorder> {
        let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let origin = since_1970.saturating_sub(clock.now().since_origin());
        let mut header = Header {
            version: VERSION.to_owned(),
            recording: name(since_1970),
            segment: 0,
            before: 0,
            origin: u64::try_from(origin.as_nanos()).unwrap_or(u64::MAX),
            seed,
            config: config.clone(),
            names: settings.names,
        };
        let mut pseudonyms = match settings.names {
            Names::Plain => None,
            Names::Hashed => Some(Pseudonyms::new(&key()?)),
        };
        if let Some(pseudonyms) = &mut pseudonyms {
            pseudonyms.header(&mut header);
        }
        let limits = Limits { directory: settings.max, segment: SEGMENT_BYTES };
        let (directory, recording) = (settings.directory.display(), header.recording.clone());
        let writer = Writer::create(&settings.directory, header, limits)
            .map_err(|error| anyhow::anyhow!("--record {directory}: cannot begin a recording: {error}"))?;
        for (deleted, bytes) in writer.deleted() {
            tracing::warn!(%directory, deleted, bytes, "deleted an earlier recording: the recordings in the directory exceeded --record-max");
        }
        tracing::info!(%directory, recording, "recording the inputs of the leader");
        let (rounds, queue) = sync_channel(ROUNDS_MAX);
        let (waiting, behind) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let begun = Written { bytes: writer.bytes(), last: SystemTime::UNIX_EPOCH + since_1970, ended: None };
        let (written, known) = watch::channel(begun);
        let recorded =
            Recorded { directory: settings.directory.clone(), name: recording, names: settings.names, written: known };
        let keeper = Keeper {
            writer,
            pseudonyms,
            waiting: Arc::clone(&waiting),
            behind: Arc::clone(&behind),
            origin: SystemTime::UNIX_EPOCH + origin,
            written,
            metrics,
        };
        let thread = std::thread::Builder::new().name("recording".to_owned()).spawn(move || keeper.run(&queue))?;
        Ok(Recorder { rounds, waiting, behind, thread, recorded, calls: Vec::new(), unfinished: false })
    }

    /// The files of the recording.
    pub(crate) fn recorded(&self) -> Recorded {
        self.recorded.clone()
    }

    pub(crate) fn input(&mut self, input: &Input) {
        self.calls.push(Call::Input(input.clone()));
    }

    pub(crate) fn tick(&mut self) {
        self.calls.push(Call::Tick);
    }

    /// Sends the calls of a round. `unfinished` is the number of effects that were taken if there are more. Returns
    /// `None` if the recording has ended.
    pub(crate) async fn round(mut self, at: Time, unfinished: Option<u32>) -> Option<Recorder> {
        let calls = std::mem::take(&mut self.calls);
        let takes_the_rest = std::mem::replace(&mut self.unfinished, unfinished.is_some());
        if calls.is_empty() && unfinished.is_none() && !takes_the_rest {
            return Some(self);
        }
        let count = calls.len();
        let mut round = Round { at, calls, unfinished };
        let begun = Instant::now();
        loop {
            if self.waiting.load(Ordering::Relaxed) < CALLS_MAX {
                // Before the thread may subtract them.
                self.waiting.fetch_add(count, Ordering::Relaxed);
                match self.rounds.try_send(round) {
                    Ok(()) => return Some(self),
                    Err(TrySendError::Full(back)) => {
                        self.waiting.fetch_sub(count, Ordering::Relaxed);
                        round = back;
                    }
                    // The thread has logged why.
                    Err(TrySendError::Disconnected(_)) => return None,
                }
            }
            if begun.elapsed() >= PATIENCE {
                tracing::error!(
                    "the recording ends here: the disk is slower than the inputs; use a faster directory for --record"
                );
                self.behind.store(true, Ordering::Relaxed);
                return None;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Ends the recording, and waits until its files are written.
    pub(crate) async fn stop(self) {
        let Recorder { rounds, thread, .. } = self;
        drop(rounds);
        let begun = Instant::now();
        while !thread.is_finished() {
            if begun.elapsed() >= STOP_WITHIN {
                tracing::error!("the recording has no end: its files are not written in time");
                return;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

/// The side of the thread.
struct Keeper {
    writer: Writer,
    pseudonyms: Option<Pseudonyms>,
    waiting: Arc<AtomicUsize>,
    behind: Arc<AtomicBool>,
    /// The time at the origin of the clock.
    origin: SystemTime,
    written: watch::Sender<Written>,
    metrics: RecordingMetrics,
}

impl Keeper {
    /// Writes rounds until the deciding task has dropped its side, or the recording is full or cannot be written.
    fn run(mut self, queue: &Receiver<Round>) {
        self.metrics.active.set(1);
        let mut last = self.written.borrow().last;
        let ended = self.write(queue, &mut last);
        self.metrics.active.set(0);
        let Keeper { writer, written, metrics, .. } = self;
        match ended.and_then(|why| Ok((writer.end(&why)?, why))) {
            Ok((bytes, why)) => {
                metrics.bytes.set(i64::try_from(bytes).unwrap_or(i64::MAX));
                let ended = match why {
                    Ended::Stopped => None,
                    Ended::Full => {
                        tracing::warn!(bytes, "the recording ends here: it has the size that --record-max allows");
                        Some("it has the size that --record-max allows")
                    }
                    // The deciding task has logged it.
                    Ended::Behind => Some("the disk of --record is slower than the inputs; use a faster one"),
                };
                written.send_replace(Written { bytes, last, ended: ended.map(str::to_owned) });
            }
            Err(error) => {
                let why = unwritten(&error);
                tracing::error!(why, "the recording ends here");
                written.send_modify(|written| written.ended = Some(why));
            }
        }
    }

    fn write(&mut self, queue: &Receiver<Round>, last: &mut SystemTime) -> io::Result<Ended> {
        let mut flushed = Instant::now();
        loop {
            self.tell(*last);
            match next(queue) {
                Ok(mut round) => {
                    let count = round.calls.len();
                    if let Some(pseudonyms) = &mut self.pseudonyms {
                        pseudonyms.round(&mut round);
                    }
                    let is_full = self.writer.round(&round)?;
                    *last = self.origin + round.at.since_origin();
                    self.waiting.fetch_sub(count, Ordering::Relaxed);
                    self.metrics.calls.inc_by(count as u64);
                    if is_full {
                        return Ok(Ended::Full);
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    let is_behind = self.behind.load(Ordering::Relaxed);
                    return Ok(if is_behind { Ended::Behind } else { Ended::Stopped });
                }
            }
            if flushed.elapsed() >= FLUSH_EVERY {
                self.writer.flush()?;
                flushed = Instant::now();
            }
        }
    }

    /// Tells readers of a new block. `last` is the time of the last round, which is in it.
    fn tell(&self, last: SystemTime) {
        let bytes = self.writer.bytes();
        self.metrics.bytes.set(i64::try_from(bytes).unwrap_or(i64::MAX));
        self.written.send_if_modified(|written| {
            let is_new = written.bytes != bytes;
            if is_new {
                *written = Written { bytes, last, ended: None };
            }
            is_new
        });
    }
}

/// Why an error ends a recording, and what helps. One without a number of the system is not about the disk.
fn unwritten(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(_) => format!("a file cannot be written: {error}; check the space of --record"),
        None => format!("{error}; report this"),
    }
}

/// The next round, as soon as there is one. Lets others gather if none waits.
#[expect(clippy::disallowed_methods, reason = "the queue keeps what comes meanwhile")]
fn next(queue: &Receiver<Round>) -> Result<Round, RecvTimeoutError> {
    queue.try_recv().or_else(|_none| {
        std::thread::sleep(GATHER_FOR);
        queue.recv_timeout(FLUSH_EVERY)
    })
}

/// The name of a recording: its time, so that names are in the order of recordings.
fn name(since_1970: Duration) -> String {
    let seconds = i64::try_from(since_1970.as_secs()).unwrap_or(i64::MAX);
    let time = k8s_openapi::jiff::Timestamp::new(seconds, i32::try_from(since_1970.subsec_nanos()).unwrap_or(0));
    time.map_or_else(|_| since_1970.as_millis().to_string(), |time| time.strftime("%Y%m%dT%H%M%S%3fZ").to_string())
}

fn key() -> anyhow::Result<[u8; 32]> {
    let mut key = [0; 32];
    getrandom::fill(&mut key).map_err(|error| anyhow::anyhow!("cannot read random bytes from the system: {error}"))?;
    Ok(key)
}
