//! Random interleavings of answers, connections, cancels and time.

use super::*;
use alloc::collections::{BTreeMap, BTreeSet};

const RUNS: u64 = 3_000;
const LEASES: u64 = 6;

/// The caller's knowledge of one lease.
#[derive(Default)]
struct Told {
    cancelled: bool,
    reports: u32,
    left: u32,
}

fn draw(jitter: &mut Rng, bound: u64) -> u64 {
    jitter.next() % bound.max(1)
}

fn any_action(jitter: &mut Rng) -> Action {
    let owner_checks = (0..draw(jitter, 4)).map(|number| object(&format!("o{number}"))).collect();
    match draw(jitter, 5) {
        0 | 1 => Action::Delete { propagation_policy: PropagationPolicy::Background, owner_checks },
        2 => {
            Action::RemoveOwnerReferences { owner_uids: vec![Uid::parse("o").unwrap()], entries: vec![], owner_checks }
        }
        3 => Action::UnblockOwnerReferences { entries: vec![entry("o", Some(true))] },
        _ => Action::RemoveFinalizer { finalizer: Name::from("orphan") },
    }
}

fn any_answer(jitter: &mut Rng, name: &str) -> Answer<u32> {
    let version = (5 + draw(jitter, 4)).to_string();
    match draw(jitter, 12) {
        0 => failure(FailureKind::NoAnswer),
        1 => failure(FailureKind::NotSent),
        2 => reply(404, None),
        3 => reply(409, None),
        4 => reply(415, None),
        5 => reply(422, None),
        6 => reply(500, None),
        7 => shows("another", &version),
        8 => waiting(name),
        _ if name.starts_with('o') => waiting(name),
        _ => shows(name, &version),
    }
}

/// One run. The error is a write that must not have been sent, or an attempt without exactly one report.
fn run(seed: u64) -> Result<(), String> {
    let mut jitter = Rng::new(seed);
    let mut machine = Machine::default();
    let (mut now, mut writes_end) = (0, 5_000);
    machine.set_writes_end(at(writes_end));
    let mut told: BTreeMap<LeaseId, Told> = BTreeMap::new();
    let mut ends: BTreeMap<LeaseId, u64> = BTreeMap::new();
    let mut open: BTreeMap<RequestId, (LeaseId, String, bool)> = BTreeMap::new();
    let mut gone: BTreeSet<RequestId> = BTreeSet::new();
    for step in 0.. {
        let is_over = step > 200;
        match draw(&mut jitter, 10) {
            0 | 1 if (told.len() as u64) < LEASES && !is_over => {
                let number = told.len() as u64 + 1;
                let execution_limit = Duration::from_millis(1 + draw(&mut jitter, 8_000));
                let lease = WorkLease {
                    execution_limit,
                    previous_attempt_ambiguous: draw(&mut jitter, 3) == 0,
                    ..lease(number, any_action(&mut jitter))
                };
                told.insert(lease.id, Told::default());
                ends.insert(lease.id, now + u64::try_from(execution_limit.as_millis()).unwrap());
                machine.start(at(now), lease);
            }
            2 if draw(&mut jitter, 4) == 0 => {
                let lease = LeaseId { term: 1, number: 1 + draw(&mut jitter, LEASES) };
                machine.cancel(at(now), lease);
                if let Some(told) = told.get_mut(&lease) {
                    told.cancelled = true;
                }
            }
            3 => now += draw(&mut jitter, 700),
            4 => {
                writes_end = writes_end.max(now + draw(&mut jitter, 3_000));
                machine.set_writes_end(at(writes_end));
            }
            _ => {
                let Some((&id, (lease, name, is_write))) =
                    open.iter().nth(usize::try_from(draw(&mut jitter, open.len() as u64)).unwrap_or(0))
                else {
                    if is_over && told.values().all(|told| told.reports == 1) {
                        return Ok(());
                    }
                    continue;
                };
                let (lease, name, is_write) = (*lease, name.clone(), *is_write);
                if is_write && draw(&mut jitter, 3) > 0 && machine.leaves(at(now), id) {
                    let told = told.get_mut(&lease).ok_or("a write of no lease")?;
                    if told.cancelled || told.reports > 0 {
                        return Err(format!("{lease} writes after its cancel or its end"));
                    }
                    if now >= writes_end || now >= ends[&lease] {
                        return Err(format!("{lease} writes at {now}, after the session or its time"));
                    }
                    told.left += 1;
                    if told.left > 2 * (CONFLICT_RETRIES_MAX + 1) {
                        return Err(format!("{lease} writes {} times", told.left));
                    }
                    open.remove(&id);
                    gone.insert(id);
                    now += draw(&mut jitter, 300);
                    machine.answered(at(now), id, any_answer(&mut jitter, &name));
                } else if !is_write || draw(&mut jitter, 4) == 0 {
                    open.remove(&id);
                    let unsent = failure(FailureKind::NotSent);
                    let answer = if is_write { unsent } else { any_answer(&mut jitter, &name) };
                    machine.answered(at(now), id, answer);
                }
            }
        }
        for output in drain(&mut machine) {
            match output {
                Output::Ask { id, lease, request } => {
                    if told[&lease].cancelled {
                        return Err(format!("{lease} asks after its cancel"));
                    }
                    let is_write = request.is_write();
                    open.insert(id, (lease, request.object().name.to_string(), is_write));
                }
                Output::Withdraw(id) => {
                    open.remove(&id);
                    if gone.contains(&id) {
                        return Err(format!("{id:?} is withdrawn after it has left"));
                    }
                }
                Output::Ended { lease, report, writes } => {
                    let told = told.get_mut(&lease.id).ok_or("a report of no lease")?;
                    told.reports += 1;
                    if told.reports > 1 || writes != told.left {
                        return Err(format!("{} ends again, or counts {writes} writes: {report:?}", lease.id));
                    }
                }
            }
        }
        if step > 20_000 {
            return Err(format!("{} attempts do not end", machine.attempts.len()));
        }
    }
    Ok(())
}

#[test]
fn nothing_leaves_after_a_cancel_or_an_end_and_every_attempt_ends_once() {
    for seed in 0..RUNS {
        if let Err(why) = run(seed) {
            panic!("seed {seed}: {why}");
        }
    }
}
