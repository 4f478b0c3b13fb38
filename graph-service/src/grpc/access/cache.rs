//! Cached answers of the API server. Concurrent identical questions are asked once.

use super::reviews::Unanswered;
use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared, WeakShared};
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// Minimum time between two removals of expired answers from a full cache.
const PURGE_EVERY: Duration = Duration::from_secs(1);

type Asking<V> = BoxFuture<'static, (Result<V, Unanswered>, Instant)>;

/// Answers by question. If the cache is full, each further question goes to the API server.
pub(super) struct Cache<K, V>
where
    V: Clone,
{
    entries: Mutex<Entries<K, V>>,
    max: usize,
}

struct Entries<K, V: Clone> {
    by_question: HashMap<K, Entry<V>>,
    purged: Option<Instant>,
}

enum Entry<V: Clone> {
    /// The question exists as long as a task waits for the answer.
    Asked(WeakShared<Asking<V>>),
    Known {
        answer: V,
        until: Instant,
    },
}

impl<V: Clone> Entry<V> {
    fn is_over(&self, now: Instant) -> bool {
        match self {
            Entry::Asked(asked) => asked.upgrade().is_none(),
            Entry::Known { until, .. } => *until <= now,
        }
    }
}

impl<K, V> Cache<K, V>
where
    K: Clone + Eq + Hash,
    V: Clone + Send + Sync + 'static,
{
    pub(super) fn new(max: usize) -> Cache<K, V> {
        Cache { entries: Mutex::new(Entries { by_question: HashMap::new(), purged: None }), max }
    }

    /// Returns the cached answer, or the one from `ask`, and caches it for its `lifetime`. A missing answer is not
    /// cached.
    pub(super) async fn get(
        &self,
        question: K,
        ask: impl FnOnce() -> BoxFuture<'static, Result<V, Unanswered>>,
        lifetime: impl Fn(&V) -> Duration,
    ) -> Result<V, Unanswered> {
        let asked = match self.known(&question, ask) {
            Ok(answer) => return Ok(answer),
            Err(asked) => asked,
        };
        let (answer, at) = asked.await;
        let mut entries = self.lock();
        // The entry exists if the cache had room for it.
        if let Some(entry) = entries.by_question.get_mut(&question) {
            match &answer {
                Ok(answer) => *entry = Entry::Known { answer: answer.clone(), until: at + lifetime(answer) },
                Err(_) if entry.is_over(Instant::now()) => {
                    entries.by_question.remove(&question);
                }
                Err(_) => {}
            }
        }
        answer
    }

    fn known(
        &self,
        question: &K,
        ask: impl FnOnce() -> BoxFuture<'static, Result<V, Unanswered>>,
    ) -> Result<V, Shared<Asking<V>>> {
        let now = Instant::now();
        let mut entries = self.lock();
        match entries.by_question.get(question) {
            Some(Entry::Known { answer, until }) if now < *until => return Ok(answer.clone()),
            Some(Entry::Asked(asked)) => {
                if let Some(asked) = asked.upgrade() {
                    return Err(asked);
                }
            }
            Some(Entry::Known { .. }) | None => {}
        }
        // The age of the answer counts from its arrival, not from when a task reads it.
        let asked: Asking<V> = Box::pin(ask().map(|answer| (answer, Instant::now())));
        let asked = asked.shared();
        if entries.has_room(question, self.max, now)
            && let Some(weak) = asked.downgrade()
        {
            entries.by_question.insert(question.clone(), Entry::Asked(weak));
        }
        Err(asked)
    }

    fn lock(&self) -> MutexGuard<'_, Entries<K, V>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.lock().by_question.len()
    }
}

impl<K: Eq + Hash, V: Clone> Entries<K, V> {
    fn has_room(&mut self, question: &K, max: usize, now: Instant) -> bool {
        if self.by_question.len() < max || self.by_question.contains_key(question) {
            return true;
        }
        if self.purged.is_none_or(|at| now.duration_since(at) >= PURGE_EVERY) {
            self.purged = Some(now);
            self.by_question.retain(|_, entry| !entry.is_over(now));
            if self.by_question.len() >= max {
                tracing::warn!(
                    max,
                    "the cache of answers about callers is full; further callers are reviewed on each call"
                );
            }
        }
        self.by_question.len() < max
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tokio::time::{advance, sleep};

    const TTL: Duration = Duration::from_secs(10);

    /// Counts how often it is asked; each answer takes a second.
    struct Oracle(Arc<AtomicUsize>);

    impl Oracle {
        fn new() -> Oracle {
            Oracle(Arc::default())
        }

        fn asked(&self) -> usize {
            self.0.load(Ordering::Relaxed)
        }

        async fn ask(&self, cache: &Cache<u32, u32>, question: u32) -> Result<u32, Unanswered> {
            self.say(cache, question, Ok(question + 1)).await
        }

        async fn say(
            &self,
            cache: &Cache<u32, u32>,
            question: u32,
            answer: Result<u32, Unanswered>,
        ) -> Result<u32, Unanswered> {
            let asked = Arc::clone(&self.0);
            let ask = move || -> BoxFuture<'static, _> {
                Box::pin(async move {
                    asked.fetch_add(1, Ordering::Relaxed);
                    sleep(Duration::from_secs(1)).await;
                    answer
                })
            };
            cache.get(question, ask, |_| TTL).await
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_good_for_its_time_and_no_longer() {
        let (cache, oracle) = (Cache::new(10), Oracle::new());
        assert_eq!(oracle.ask(&cache, 1).await, Ok(2));
        advance(TTL - Duration::from_millis(1)).await;
        assert_eq!((oracle.ask(&cache, 1).await, oracle.asked()), (Ok(2), 1));
        advance(Duration::from_millis(1)).await;
        assert_eq!((oracle.ask(&cache, 1).await, oracle.asked()), (Ok(2), 2));
    }

    #[tokio::test(start_paused = true)]
    async fn the_same_question_is_asked_once_and_one_who_leaves_takes_nothing_away() {
        let (cache, oracle) = (Cache::new(10), Oracle::new());
        {
            let left = oracle.ask(&cache, 1);
            tokio::pin!(left);
            assert!(futures::poll!(&mut left).is_pending());
            let (one, two) = tokio::join!(oracle.ask(&cache, 1), async {
                sleep(Duration::from_millis(500)).await;
                oracle.ask(&cache, 1).await
            });
            assert_eq!((one, two, oracle.asked()), (Ok(2), Ok(2), 1));
        }
        // If all waiters have left, the answer has no receiver.
        {
            let left = oracle.ask(&cache, 5);
            tokio::pin!(left);
            assert!(futures::poll!(&mut left).is_pending());
        }
        advance(Duration::from_secs(60)).await;
        assert_eq!((oracle.ask(&cache, 5).await, oracle.asked()), (Ok(6), 3));
    }

    #[tokio::test(start_paused = true)]
    async fn a_missing_answer_is_reported_to_all_waiting_callers_and_not_cached() {
        let (cache, oracle) = (Cache::new(10), Oracle::new());
        let silence = || Err(Unanswered::of("nothing"));
        let (one, two) = tokio::join!(oracle.say(&cache, 1, silence()), oracle.say(&cache, 1, silence()));
        assert_eq!((one, two, oracle.asked(), cache.len()), (silence(), silence(), 1, 0));
        assert_eq!((oracle.ask(&cache, 1).await, oracle.asked()), (Ok(2), 2));
    }

    #[tokio::test(start_paused = true)]
    async fn what_has_no_room_is_asked_each_time_until_something_is_over() {
        let (cache, oracle) = (Cache::new(2), Oracle::new());
        for question in [1, 2, 3, 3] {
            assert_eq!(oracle.ask(&cache, question).await, Ok(question + 1));
        }
        assert_eq!((oracle.asked(), cache.len()), (4, 2));
        advance(TTL).await;
        for question in [3, 3] {
            assert_eq!(oracle.ask(&cache, question).await, Ok(question + 1));
        }
        assert_eq!((oracle.asked(), cache.len()), (5, 1));
    }
}
