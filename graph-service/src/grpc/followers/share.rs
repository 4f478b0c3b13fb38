//! The limits of each caller: streams, processor time of the threads that write them, and bytes.
//!
//! A caller is a user if callers are authenticated, and otherwise a connection. If a caller has used up its share, only
//! that caller waits. If all callers together send more bytes than the collector allows, each waits until its own
//! messages are paid for, in the order in which they were sent. This limit exists because HTTP/2 costs processor time
//! beyond that of the writing threads.

use crate::grpc::access::{Visibility, Whose};
use crate::grpc::connection::Cut;
use crate::grpc::status;
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::thread::available_parallelism;
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep_until};
use tonic::Status;

/// Maximum number of streams.
pub(in crate::grpc) const STREAMS_MAX: usize = 256;
/// Number of places that only callers with the right for all namespaces may take.
const RESERVED: usize = 32;
/// Maximum number of streams of one caller.
pub(in crate::grpc) const STREAMS_PER_CALLER_MAX: usize = 16;
/// Processor time of one caller's streams for each second.
const TIME_PER_SECOND: Duration = Duration::from_millis(200);
/// Bytes of one caller's streams for each second.
const BYTES_PER_SECOND: f64 = 64.0 * 1024.0 * 1024.0;
/// Bytes of all streams for each second and processor: about 150,000 events.
const ALL_BYTES_PER_SECOND: f64 = 96.0 * 1024.0 * 1024.0;
/// Part of the common budget that may be spent in advance.
const ALL_IN_ADVANCE: Duration = Duration::from_millis(100);

/// The caller of a stream.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Caller {
    User(Whose),
    Connection(u64),
    /// A call of a handler without a connection, in a test.
    Process,
}

/// The number of streams of each caller.
#[derive(Clone, Debug, Default)]
pub(super) struct Places(Arc<Mutex<Taken>>);

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    /// Streams of callers without the right for all namespaces.
    limited: usize,
    callers: BTreeMap<Caller, Held>,
    bytes: AllBytes,
}

#[derive(Debug)]
struct Held {
    streams: usize,
    share: Share,
}

/// The place of one stream, while it exists.
#[derive(Debug)]
pub(super) struct Place {
    places: Places,
    caller: Caller,
    is_limited: bool,
    share: Share,
}

impl Places {
    /// A place for a stream, or the limit that is reached.
    pub(super) fn take(&self, connection: Option<&Cut>, visibility: &Visibility) -> Result<Place, Status> {
        let caller = match (visibility.whose(), connection) {
            (Some(whose), _) => Caller::User(whose),
            (None, Some(connection)) => Caller::Connection(connection.id()),
            (None, None) => Caller::Process,
        };
        let is_limited = !visibility.sees_everything();
        let mut taken = self.taken();
        taken.forget();
        let held = taken.callers.get(&caller).map_or(0, |held| held.streams);
        let user = || visibility.whose().map(|whose| whose.user().to_owned()).unwrap_or_default();
        if held >= STREAMS_PER_CALLER_MAX {
            return Err(status::streams_exceeded("streams of one caller", STREAMS_PER_CALLER_MAX, &user()));
        }
        if is_limited && taken.limited >= STREAMS_MAX - RESERVED {
            let what = "streams of callers without the right for all namespaces";
            return Err(status::streams_exceeded(what, STREAMS_MAX - RESERVED, &user()));
        }
        if taken.all >= STREAMS_MAX {
            return Err(status::streams_exceeded("streams of all callers", STREAMS_MAX, &user()));
        }
        taken.all += 1;
        taken.limited += usize::from(is_limited);
        let all = taken.bytes.clone();
        let held =
            taken.callers.entry(caller.clone()).or_insert_with(|| Held { streams: 0, share: Share::within(all) });
        held.streams += 1;
        Ok(Place { places: self.clone(), caller, is_limited, share: held.share.clone() })
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Taken {
    /// Forgets callers that have no streams and have used nothing of their share. A caller that reconnects earlier
    /// finds its share as it was.
    fn forget(&mut self) {
        let now = Instant::now();
        self.callers.retain(|_, held| held.streams > 0 || !held.share.is_whole(now));
    }
}

impl Place {
    pub(super) fn share(&self) -> Share {
        self.share.clone()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.taken();
        taken.all -= 1;
        taken.limited -= usize::from(self.is_limited);
        if let Some(held) = taken.callers.get_mut(&self.caller) {
            held.streams -= 1;
        }
        taken.forget();
    }
}

/// The bytes of all callers, as the time at which everything spent is paid for.
#[derive(Clone, Debug)]
struct AllBytes {
    spent: Arc<Mutex<Instant>>,
    per_second: f64,
}

impl Default for AllBytes {
    fn default() -> AllBytes {
        AllBytes { spent: Arc::new(Mutex::new(Instant::now())), per_second: all_bytes_per_second() }
    }
}

/// The budget of this machine.
pub(super) fn all_bytes_per_second() -> f64 {
    let processors = available_parallelism().map_or(1, NonZeroUsize::get);
    ALL_BYTES_PER_SECOND * u32::try_from(processors).map_or(1.0, f64::from)
}

impl AllBytes {
    /// The time at which these bytes, and all that were sent before, are paid for.
    fn spend(&self, bytes: f64) -> Instant {
        let mut spent = self.spent.lock().unwrap_or_else(PoisonError::into_inner);
        *spent = (*spent).max(Instant::now()) + Duration::from_secs_f64(bytes / self.per_second);
        *spent
    }
}

/// Time and bytes of one caller.
#[derive(Clone, Debug, Default)]
pub(super) struct Share {
    own: Arc<Mutex<Spent>>,
    all: AllBytes,
}

/// The time at which everything spent is paid for. The value of one second may be spent in advance.
#[derive(Debug)]
struct Spent {
    time: Instant,
    bytes: Instant,
    /// The time at which this caller's last bytes are paid for among those of all callers.
    turn: Instant,
}

impl Default for Spent {
    fn default() -> Spent {
        Spent { time: Instant::now(), bytes: Instant::now(), turn: Instant::now() }
    }
}

impl Share {
    fn within(all: AllBytes) -> Share {
        Share { own: Arc::default(), all }
    }

    pub(super) fn spend_time(&self, spent: Duration) {
        let mut all = self.spent();
        all.time = all.time.max(Instant::now()) + spent.mul_f64(1.0 / TIME_PER_SECOND.as_secs_f64());
    }

    pub(super) fn spend_bytes(&self, spent: usize) {
        // Messages are far below the range in which a float loses precision.
        let bytes = u32::try_from(spent).map_or(f64::from(u32::MAX), f64::from);
        let turn = self.all.spend(bytes);
        let mut own = self.spent();
        own.turn = turn;
        own.bytes = own.bytes.max(Instant::now()) + Duration::from_secs_f64(bytes / BYTES_PER_SECOND);
    }

    /// The time at which the streams continue.
    fn ready_at(&self) -> Instant {
        let spent = self.spent();
        let before = |moment: Instant, advance: Duration| moment.checked_sub(advance).unwrap_or(moment);
        before(spent.time.max(spent.bytes), Duration::from_secs(1)).max(before(spent.turn, ALL_IN_ADVANCE))
    }

    /// Whether nothing is spent.
    fn is_whole(&self, now: Instant) -> bool {
        let spent = self.spent();
        spent.time <= now && spent.bytes <= now
    }

    fn spent(&self) -> MutexGuard<'_, Spent> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A writer that spends its caller's processor time, and waits while that time is used up.
pub(super) struct Metered<F> {
    writing: Pin<Box<F>>,
    share: Share,
    waiting: Option<Pin<Box<Sleep>>>,
}

impl<F> Metered<F> {
    pub(super) fn new(writing: F, share: Share) -> Metered<F> {
        Metered { writing: Box::pin(writing), share, waiting: None }
    }
}

impl<F: Future> Future for Metered<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let ready_at = self.share.ready_at();
        if ready_at > Instant::now() {
            let waiting = self.waiting.get_or_insert_with(|| Box::pin(sleep_until(ready_at)));
            // Other streams of the caller may have spent more in the meantime.
            waiting.as_mut().reset(ready_at);
            if waiting.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
        }
        self.waiting = None;
        let before = thread_time();
        let polled = self.writing.as_mut().poll(context);
        self.share.spend_time(thread_time().saturating_sub(before));
        polled
    }
}

/// Processor time of this thread.
#[cfg(unix)]
fn thread_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

/// The time, where that of the thread cannot be had. The work between two calls does not wait.
#[cfg(not(unix))]
fn thread_time() -> Duration {
    static START: std::sync::LazyLock<std::time::Instant> = std::sync::LazyLock::new(std::time::Instant::now);
    START.elapsed()
}
