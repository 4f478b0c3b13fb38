use super::*;
use crate::decisions::Writer;
use engine::leader::{Event, Grounds};
use engine::object::{ObjectRef, ResourceVersion, Uid};
use engine::work::{Action, ActionKind, GoAwayCause, Preconditions, RevokeMode, Term, WorkItem};
use proto::convert::Clock;
use std::time::{Duration, SystemTime};

const STREAM: StreamId = StreamId(1);

fn term() -> Term {
    Term { election: "election".into(), number: 1 }
}

fn target() -> ObjectRef {
    ObjectRef {
        group: "".into(),
        version: "v1".into(),
        resource: "secrets".into(),
        kind: "Secret".into(),
        namespace: "shop".into(),
        name: "a".into(),
        uid: Uid::parse("uid-a").unwrap(),
    }
}

fn lease_id(number: u64) -> LeaseId {
    LeaseId { term: 1, number }
}

fn grant(ids: &[u64]) -> ToExecutor {
    let lease = |id: &u64| WorkLease {
        id: lease_id(*id),
        term: term(),
        item: WorkItem {
            id: 1,
            target: target(),
            preconditions: Preconditions {
                resource_version: ResourceVersion::parse("1"),
                facts_digest: 0,
                must_be_terminating: false,
            },
            action: Action::RemoveFinalizer { finalizer: "orphan".into() },
            read_first: false,
            generation: 1,
        },
        attempt: 1,
        execution_limit: Duration::from_secs(30),
        previous_attempt_ambiguous: false,
        traceparent: None,
    };
    ToExecutor::Grant { leases: ids.iter().map(lease).collect() }
}

fn revoke(ids: &[u64]) -> ToExecutor {
    let leases = ids.iter().copied().map(lease_id).collect();
    ToExecutor::Revoke { leases, mode: RevokeMode::Stop, reason: "paused".to_owned() }
}

/// A queue of events, and the messages that wait for it.
struct World {
    queue: Arc<Queue>,
    writer: Writer,
    pending: PendingDecisions,
}

impl World {
    fn new(is_required: bool) -> World {
        World::on(Queue::new(is_required))
    }

    fn on(queue: Queue) -> World {
        let queue = Arc::new(queue);
        let mut writer = Writer::into_queue(Arc::clone(&queue));
        let clock = Clock { now: engine::time::Time::ZERO, calendar: SystemTime::UNIX_EPOCH };
        writer.note(&Event::TermGained(term()), clock);
        writer.publish();
        let pending = PendingDecisions::new(Some(Arc::clone(&queue)));
        World { queue, writer, pending }
    }

    /// One round that decides and sends this message.
    fn round(&mut self, message: ToExecutor) -> Option<ToExecutor> {
        let clock = Clock { now: engine::time::Time::ZERO, calendar: SystemTime::UNIX_EPOCH };
        let event = Event::Withdrawn {
            item: 1,
            target: target(),
            action: ActionKind::Delete,
            replaced: false,
            grounds: Grounds::unknown(7),
        };
        self.writer.note(&event, clock);
        let leaves = self.pending.admit(STREAM, message);
        self.writer.publish();
        self.pending.round_is_noted(false);
        leaves
    }

    fn released(&mut self) -> Vec<ToExecutor> {
        self.pending.released().into_iter().map(|(_, message)| message).collect()
    }
}

#[tokio::test]
async fn a_grant_leaves_once_what_tells_of_it_is_written_and_others_do_not_wait_for_it() {
    let mut world = World::new(false);
    assert_eq!(world.round(grant(&[1, 2])), None);
    assert_eq!(world.round(grant(&[3])), None);
    let ack = ToExecutor::DrainAck { outstanding: 3 };
    assert_eq!(world.round(ack.clone()), Some(ack));
    assert_eq!(world.released(), []);
    world.queue.written();
    assert_eq!(world.released(), [grant(&[1, 2])]);
    world.queue.written();
    assert_eq!(world.released(), [grant(&[3])]);
}

#[tokio::test]
async fn what_is_recalled_before_it_left_comes_back_as_not_begun_and_the_executor_hears_nothing_of_it() {
    let mut world = World::new(true);
    world.round(grant(&[1, 2]));
    let told = world.round(revoke(&[2, 9]));
    assert_eq!(told, Some(revoke(&[9])));
    assert_eq!(world.round(revoke(&[1])), None);
    let back = |id: u64| {
        let returns = vec![WorkReturn { lease: lease_id(id), cause: ReturnCause::NotStarted }];
        (STREAM, ToLeader::Reports { reports: Vec::new(), returns })
    };
    assert!(world.pending.has_returned());
    assert_eq!(world.pending.returned(), [back(2), back(1)]);
    for _ in 0..3 {
        world.queue.written();
    }
    assert_eq!(world.released(), []);
}

#[tokio::test]
async fn an_executor_that_was_told_to_leave_or_is_gone_gets_no_more_grants() {
    let mut world = World::new(false);
    world.round(grant(&[1]));
    let away = ToExecutor::GoAway {
        cause: GoAwayCause::LeaderChanged,
        leader_endpoint: String::new(),
        reconnect_after: Duration::ZERO,
        close_after: Duration::ZERO,
    };
    assert_eq!(world.round(away.clone()), Some(away));
    world.round(grant(&[2]));
    world.pending.forget(STREAM);
    for _ in 0..3 {
        world.queue.written();
    }
    assert_eq!(world.released(), []);
}

#[tokio::test(start_paused = true)]
async fn a_log_that_is_away_is_not_waited_for_unless_it_is_required() {
    for is_required in [false, true] {
        let mut world = World::new(is_required);
        let connecting = world.pending.news();
        world.round(grant(&[1]));
        tokio::time::sleep(Duration::from_secs(3)).await;
        world.queue.away("refused");
        if is_required {
            assert!(matches!(connecting, Some(Some(why)) if why.contains("not reached")));
            assert_eq!(world.pending.news(), Some(Some("the decision log is unreachable".to_owned())));
            assert_eq!((world.pending.news(), world.released()), (None, vec![]));
            world.queue.written();
            assert_eq!(world.pending.news(), Some(None));
        } else {
            assert_eq!((connecting, world.pending.news()), (None, None));
        }
        assert_eq!(world.released(), [grant(&[1])]);
    }
}

#[tokio::test]
async fn a_grant_of_which_a_log_that_is_required_has_no_room_to_tell_comes_back() {
    for is_required in [false, true] {
        let mut world = World::on(Queue::bounded(2, is_required));
        world.round(grant(&[1]));
        world.round(grant(&[2]));
        // The third has no room.
        world.round(grant(&[3]));
        let returns = vec![WorkReturn { lease: lease_id(3), cause: ReturnCause::NotStarted }];
        let back = (STREAM, ToLeader::Reports { reports: Vec::new(), returns });
        assert_eq!(world.pending.returned(), if is_required { vec![back] } else { vec![] });
        for _ in 0..3 {
            world.queue.written();
        }
        let all = [grant(&[1]), grant(&[2]), grant(&[3])];
        assert_eq!(world.released(), all[..if is_required { 2 } else { 3 }]);
        world.round(grant(&[4]));
        world.queue.written();
        assert_eq!(world.released(), [grant(&[4])], "there is room again");
    }
}

#[tokio::test]
async fn an_event_and_its_grant_may_be_in_two_rounds() {
    let mut world = World::on(Queue::bounded(1, true));
    let clock = Clock { now: engine::time::Time::ZERO, calendar: SystemTime::UNIX_EPOCH };
    let event = Event::Withdrawn {
        item: 1,
        target: target(),
        action: ActionKind::Delete,
        replaced: false,
        grounds: Grounds::unknown(7),
    };
    for _ in 0..2 {
        world.writer.note(&event, clock);
    }
    world.writer.publish();
    world.pending.round_is_noted(true);
    world.pending.admit(STREAM, grant(&[1]));
    world.pending.round_is_noted(false);
    assert_eq!(world.pending.returned().len(), 1);
}

#[tokio::test]
async fn without_a_shared_log_nothing_waits() {
    let mut pending = PendingDecisions::new(None);
    assert_eq!(pending.admit(STREAM, grant(&[1])), Some(grant(&[1])));
    assert_eq!(pending.admit(STREAM, revoke(&[1])), Some(revoke(&[1])));
    assert_eq!(pending.news(), None);
}
