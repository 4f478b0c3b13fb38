//! Random answers in any order, and the invariants that must hold.

use super::*;
use crate::jitter::Rng;

/// The state of leader, caller and server.
struct Run {
    follow: Follow,
    random: Rng,
    now: Time,
    asked: Ask,
    open: bool,
    /// A list has started, and neither ended nor failed.
    listing: bool,
    /// A list has ended, and its objects are watched.
    synced: bool,
    /// The last position that the leader knows.
    position: Option<ResourceVersion>,
    /// The position has expired: a watch from it fails.
    expired: bool,
    lists: u32,
    highest: u64,
}

impl Run {
    fn new(seed: u64) -> Run {
        let mut random = Rng::new(seed);
        let config = Config { name: "things".to_string(), page_size: 2, paged: random.next() & 1 == 0, seed };
        let follow = Follow::new(at(1), config);
        let mut run = Run {
            follow,
            random,
            now: at(1),
            asked: Ask::Nothing,
            open: false,
            listing: false,
            synced: false,
            position: None,
            expired: false,
            lists: 0,
            highest: 1,
        };
        run.drain();
        run
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.random.next() % bound
    }

    fn version(&mut self) -> ResourceVersion {
        self.highest += self.below(3);
        version(self.highest)
    }

    fn drain(&mut self) {
        while let Some(output) = self.follow.poll() {
            match output {
                Output::Ask(ask) => {
                    match &ask {
                        Ask::Watch { position, seconds } => {
                            assert!(self.synced && !self.listing && !self.expired);
                            assert_eq!(Some(position), self.position.as_ref(), "goes on where it was");
                            assert!((WATCH_FOR_UNMARKED_S..2 * WATCH_FOR_S).contains(seconds));
                        }
                        Ask::WatchList { .. } | Ask::Page { token: None, .. } => self.expired = false,
                        Ask::Page { token: Some(_), .. } => assert!(self.listing),
                        Ask::Nothing => {}
                    }
                    (self.asked, self.open) = (ask, false);
                }
                Output::Objects => assert!(self.listing, "objects outside of a list"),
                Output::Tell(Tell::ListBegun) => (self.listing, self.synced) = (true, false),
                Output::Tell(Tell::ListEnded(position)) => {
                    assert!(self.listing, "a list ends that has not begun");
                    (self.listing, self.synced, self.position) = (false, true, Some(position));
                    self.lists += 1;
                }
                Output::Tell(Tell::ListFailed(_)) => {
                    assert!(!self.synced);
                    self.listing = false;
                }
                Output::Tell(Tell::Bookmark(position)) => {
                    assert!(self.synced && !self.listing);
                    self.position = Some(position);
                }
                Output::Tell(Tell::WatchLost(..) | Tell::WatchResumed) => assert!(self.synced && !self.listing),
                Output::Tell(Tell::ListsAnew(_)) => self.synced = false,
            }
        }
        let waits = self.follow.next_deadline().map(|due| due.since(self.now));
        match (&self.asked, self.open) {
            (Ask::Nothing, _) => {
                let rest = waits.expect("rests until something");
                assert!(rest <= BACKOFF_MAX.max(Duration::from_secs(60)), "{rest:?}");
            }
            (_, true) => assert!(waits.expect("silence has an end") <= SILENCE_MAX),
            (_, false) => assert_eq!(waits, None, "an ask is answered"),
        }
    }

    fn handle(&mut self, input: Input) {
        if let Input::Failed(failure) = &input
            && failure.is_expired()
            && self.synced
        {
            self.expired = true;
        }
        self.follow.handle(self.now, input);
    }

    fn failure(&mut self) -> Input {
        let statuses = [None, Some(200), Some(400), Some(403), Some(404), Some(410), Some(429), Some(500), Some(503)];
        let status = statuses[usize::try_from(self.below(statuses.len() as u64)).expect("small")];
        let retry_after = (self.below(4) == 0).then(|| Duration::from_secs(self.below(61)));
        Input::Failed(Failure { sentence: format!("{status:?}"), status, retry_after })
    }

    fn step(&mut self) {
        self.now = self.now + Duration::from_millis(self.random.next() % 400);
        match (&self.asked, self.open) {
            (Ask::Nothing, _) => {
                self.now = self.now.max(self.follow.next_deadline().expect("rests until something"));
                self.follow.tick(self.now);
            }
            (Ask::Page { token, .. }, _) => {
                let later = token.is_some();
                match self.below(4) {
                    0 => {
                        let failure = self.failure();
                        self.handle(failure);
                    }
                    _ => {
                        let position = Some(self.version()).filter(|_| later || self.below(8) > 0);
                        let token = (self.below(3) > 0).then(|| "more".to_string());
                        self.handle(Input::Page { position, token });
                    }
                }
            }
            (Ask::WatchList { .. } | Ask::Watch { .. }, false) => match self.below(3) {
                0 => {
                    let failure = self.failure();
                    self.handle(failure);
                }
                _ => {
                    self.open = true;
                    self.handle(Input::Opened);
                }
            },
            (Ask::WatchList { .. } | Ask::Watch { .. }, true) => self.stream(),
        }
        self.drain();
    }

    fn stream(&mut self) {
        match self.below(16) {
            0 => {
                let failure = self.failure();
                self.handle(failure);
            }
            1 => self.handle(Input::Ended),
            2 => self.handle(Input::Unusable("no".to_string())),
            3 => {
                self.follow.waits(self.now);
                let due = self.follow.next_deadline().expect("silence has an end");
                assert!(due.since(self.now) <= SILENCE_MAX);
                self.now = due;
                self.follow.tick(self.now);
                assert_ne!(self.follow.next_deadline(), Some(due), "silence is given up");
            }
            4 | 5 => {
                let (position, ends_list) = (self.version(), self.below(3) > 0);
                self.handle(Input::Bookmark { position, ends_list });
            }
            what => {
                let (deleted, position) = (what == 6, self.version());
                match self.follow.pass(deleted, Some(position.clone())) {
                    Pass::Listed => assert!(self.listing),
                    Pass::Seen => {
                        assert!(self.synced && !self.listing);
                        self.position = Some(position);
                    }
                    Pass::Deleted if self.synced => self.position = Some(position),
                    Pass::Deleted => assert!(self.listing),
                    Pass::Nothing => panic!("the stream is open"),
                }
                self.follow.waits(self.now);
            }
        }
    }
}

#[test]
fn whatever_a_server_answers_lists_end_and_watches_go_on_where_they_were() {
    let mut lists = 0;
    for seed in 0..300 {
        let mut run = Run::new(seed);
        for _ in 0..600 {
            run.step();
        }
        assert!(run.lists > 0, "seed {seed}: no list ever ended");
        lists += run.lists;
        // A recovered server is followed again.
        run.follow.handle(run.now, Input::Unusable("begin anew".to_string()));
        run.drain();
        for _ in 0..10 {
            match (run.asked.clone(), run.open) {
                (Ask::Nothing, _) => run.step(),
                (Ask::Page { .. }, _) => run.handle(Input::Page { position: Some(version(1_000_000)), token: None }),
                (Ask::WatchList { .. }, true) => {
                    run.handle(Input::Bookmark { position: version(1_000_000), ends_list: true });
                }
                (Ask::Watch { .. }, true) => break,
                (Ask::WatchList { .. } | Ask::Watch { .. }, false) => {
                    run.open = true;
                    run.handle(Input::Opened);
                }
            }
            run.drain();
        }
        assert!(run.synced && run.open, "seed {seed}");
    }
    assert!(lists > 3_000, "{lists} lists");
}
