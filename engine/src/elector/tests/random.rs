//! Candidates with clocks of different rates, lost and late answers, frozen and killed processes, compared with a model
//! of the Lease.

use super::*;
use alloc::collections::BTreeMap;

const CANDIDATES: usize = 3;
/// Microseconds of true time with faults; the rest is without.
const FAULTS_END: u64 = 240_000_000;
const RUN_END: u64 = 340_000_000;
/// Clock rates in percent. The ratio of fastest to slowest stays just below `lease_duration / renew_deadline`, which is
/// 1.5.
const RATES: [u64; 3] = [83, 100, 124];

enum Happening {
    Tick(usize),
    Arrives { candidate: usize, life: u64, call: CallId, write: Option<LeaseWrite> },
    Answer { candidate: usize, life: u64, input: Input },
}

struct Candidate {
    elector: Elector,
    /// Counts the processes in this slot: answers to a dead one are dropped.
    life: u64,
    rate: u64,
    offset: u64,
    frozen_until: u64,
    /// Until then nothing that it sends arrives.
    cut_until: u64,
    released: bool,
}

fn slot_of(number: u64, slots: usize) -> usize {
    usize::try_from(number % slots as u64).expect("small")
}

impl Candidate {
    fn local(&self, now: u64) -> Time {
        Time::from_origin(Duration::from_micros(self.offset + now * self.rate / 100))
    }

    fn is_valid_leader(&self, now: u64) -> bool {
        self.elector.valid_until().is_some_and(|end| self.local(now) < end)
    }
}

struct World {
    seed: u64,
    random: Rng,
    now: u64,
    queue: BTreeMap<(u64, u64), Happening>,
    queued: u64,
    lease: Option<LeaseRecord>,
    version: u64,
    candidates: Vec<Candidate>,
    last_number: u64,
    gained: u64,
    /// Drawn for each seed: percent of slow calls and answers, and of lost ones.
    slow: (u64, u64),
    lost: u64,
}

impl World {
    fn new(seed: u64) -> World {
        let mut world = World {
            seed,
            random: Rng::new(seed),
            now: 0,
            queue: BTreeMap::new(),
            queued: 0,
            lease: None,
            version: 0,
            candidates: Vec::new(),
            last_number: 0,
            gained: 0,
            slow: (0, 0),
            lost: 0,
        };
        world.slow = (world.random.next() % 3 * 10, world.random.next() % 3 * 20);
        world.lost = world.random.next() % 3 * 5;
        for slot in 0..CANDIDATES {
            let candidate = world.candidate(slot, 0);
            world.candidates.push(candidate);
            world.later(0, Happening::Tick(slot));
        }
        world
    }

    fn candidate(&mut self, slot: usize, life: u64) -> Candidate {
        Candidate {
            elector: Elector::new(config(&format!("candidate-{slot}-{life}")), self.random.next()),
            life,
            rate: RATES[slot_of(self.random.next(), RATES.len())],
            offset: self.random.next() % 1_000_000_000,
            frozen_until: 0,
            cut_until: 0,
            released: false,
        }
    }

    fn later(&mut self, delay: u64, happening: Happening) {
        self.queued += 1;
        self.queue.insert((self.now + delay, self.queued), happening);
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.now < FAULTS_END && self.random.next() % 100 < percent
    }

    /// For the call or for the answer.
    fn latency(&mut self, slow: u64) -> u64 {
        let most = if self.chance(slow) { 12_000_000 } else { 300_000 };
        self.random.next() % most
    }

    fn run(&mut self) {
        let mut leaderless_since = None;
        while let Some(((at, _), happening)) = self.queue.pop_first() {
            self.now = at;
            if at > RUN_END {
                break;
            }
            self.happen(happening);
            let leaders = self.candidates.iter().filter(|candidate| candidate.is_valid_leader(at)).count();
            assert!(leaders <= 1, "seed {}: {leaders} leaders at {at} us", self.seed);
            if leaders == 1 || at < FAULTS_END {
                leaderless_since = None;
            } else {
                let since: u64 = *leaderless_since.get_or_insert(at);
                assert!(at - since < 60_000_000, "seed {}: no candidate leads since {since} us", self.seed);
            }
        }
        assert!(self.gained > 0, "seed {}: no candidate ever led", self.seed);
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Tick(slot) => {
                if !self.is_frozen(slot) {
                    self.perhaps_disturb(slot);
                    let local = self.candidates[slot].local(self.now);
                    self.candidates[slot].elector.tick(local);
                    self.drain(slot);
                }
                self.later(100_000, Happening::Tick(slot));
            }
            Happening::Arrives { candidate, life, call, write } => self.arrives(candidate, life, call, write),
            Happening::Answer { candidate, life, input } => {
                if self.candidates[candidate].life != life {
                    return;
                }
                if self.is_frozen(candidate) {
                    let wait = self.candidates[candidate].frozen_until - self.now;
                    self.later(wait, Happening::Answer { candidate, life, input });
                    return;
                }
                let local = self.candidates[candidate].local(self.now);
                self.candidates[candidate].elector.handle(local, input);
                self.drain(candidate);
            }
        }
    }

    fn is_frozen(&self, slot: usize) -> bool {
        self.now < self.candidates[slot].frozen_until
    }

    /// Randomly freezes, kills or releases the process, and changes the Lease from outside.
    fn perhaps_disturb(&mut self, slot: usize) {
        if self.now >= FAULTS_END && !self.candidates[slot].released {
            return;
        }
        match self.random.next() % 10_000 {
            0..10 => self.candidates[slot].frozen_until = self.now + self.random.next() % 30_000_000,
            10..60 => self.candidates[slot].cut_until = self.now + self.random.next() % 30_000_000,
            60..65 => {
                let local = self.candidates[slot].local(self.now);
                self.candidates[slot].elector.handle(local, Input::Release);
                self.drain(slot);
            }
            65..70 => self.restart(slot),
            70..80 => {
                self.version += 1;
                if let Some(lease) = &mut self.lease {
                    lease.resource_version = ResourceVersion::parse(&self.version.to_string());
                }
            }
            // A watch reports changes, late and twice, and some that did not happen.
            80..1_000 => {
                let local = self.candidates[slot].local(self.now);
                self.candidates[slot].elector.handle(local, Input::Changed);
                self.drain(slot);
            }
            _ if self.candidates[slot].released => self.restart(slot),
            _ => {}
        }
    }

    fn restart(&mut self, slot: usize) {
        let life = self.candidates[slot].life + 1;
        self.candidates[slot] = self.candidate(slot, life);
    }

    fn drain(&mut self, slot: usize) {
        while let Some(output) = self.candidates[slot].elector.poll() {
            let life = self.candidates[slot].life;
            let (call, write) = match output {
                Output::Get { call } => (call, None),
                Output::Put { call, write } => (call, Some(write)),
                Output::Gained(term) => {
                    assert!(term.number > self.last_number, "seed {}: term {} again", self.seed, term.number);
                    self.last_number = term.number;
                    self.gained += 1;
                    continue;
                }
                Output::Released => {
                    self.candidates[slot].released = true;
                    continue;
                }
                Output::Lost { .. } | Output::Follows { .. } | Output::Failed { .. } => continue,
            };
            let on_the_way = self.latency(self.slow.0);
            if self.chance(self.lost) {
                // The caller gets an error, whether or not the call still arrives.
                let failed = "timeout".to_string();
                let input = match &write {
                    None => Input::Got { call, answer: Err(failed) },
                    Some(_) => Input::Put { call, answer: Err(PutError::Failed(failed)) },
                };
                let patience = self.random.next() % 5_000_000;
                self.later(patience, Happening::Answer { candidate: slot, life, input });
            }
            if !self.chance(self.lost) && self.now >= self.candidates[slot].cut_until {
                self.later(on_the_way, Happening::Arrives { candidate: slot, life, call, write });
            }
        }
    }

    /// The API server handles the call. Of two answers to one call the elector must ignore the second.
    fn arrives(&mut self, candidate: usize, life: u64, call: CallId, write: Option<LeaseWrite>) {
        let input = match write {
            None => Input::Got { call, answer: Ok(self.lease.clone()) },
            Some(write) => Input::Put { call, answer: self.apply(write) },
        };
        if !self.chance(self.lost) {
            let back = self.latency(self.slow.1);
            self.later(back, Happening::Answer { candidate, life, input });
        }
    }

    fn apply(&mut self, write: LeaseWrite) -> Result<LeaseRecord, PutError> {
        let current = self.lease.as_ref().map(|lease| lease.resource_version.clone());
        if current != write.resource_version {
            return Err(PutError::Conflict);
        }
        self.version += 1;
        let record = LeaseRecord {
            uid: Name::from("L"),
            resource_version: ResourceVersion::parse(&self.version.to_string()),
            holder: write.holder,
            transitions: write.transitions,
            duration: write.duration,
            renewed: self.now.to_string(),
        };
        self.lease = Some(record.clone());
        Ok(record)
    }
}

#[test]
fn there_are_never_two_leaders_and_terms_grow() {
    for seed in 0..400 {
        World::new(seed).run();
    }
}
