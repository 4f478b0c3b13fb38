//! The bounds in docs/decisions.md, each reached.

use super::*;
use crate::clock::wire;
use crate::decisions::FRAME_BYTES;
use crate::grpc::decisions::encode::{BATCH_MAX_BYTES, parts};
use crate::grpc::decisions::looked::Looked;
use engine::evidence::{Presence, Proof};
use engine::leader::{AttemptEnd, Grounds};
use engine::object::{ObjectRef as Object, OwnerReference, ResourceVersion, Uid};
use engine::view::{EdgeView, OwnerStanding};
use engine::work::{ActionKind, Outcome, Preconditions};
use proto::convert::EVENT_MAX_BYTES;

const MIB: usize = 1024 * 1024;

fn long(number: usize) -> String {
    format!("{number:04}{}", "n".repeat(600))
}

fn large_object(number: usize) -> Object {
    let part = || long(number).as_str().into();
    Object {
        group: part(),
        version: part(),
        resource: part(),
        kind: part(),
        namespace: part(),
        name: part(),
        uid: Uid::parse(&long(number)).unwrap(),
    }
}

/// A step of a decision on an object with the most and longest references.
fn large(number: usize) -> Event {
    let version = || ResourceVersion::parse(&long(1));
    let edge = |number: usize| EdgeView {
        owner: large_object(number),
        dependent: Uid::parse(&long(0)).unwrap(),
        reference: OwnerReference {
            api_version: long(1).as_str().into(),
            kind: long(1).as_str().into(),
            name: long(1).as_str().into(),
            uid: Uid::parse(&long(number)).unwrap(),
            controller: Some(true),
            block_owner_deletion: None,
        },
        standing: OwnerStanding::Dangling,
        presence: Presence::Observed { resource_version: version() },
    };
    let cause = |number: usize| engine::leader::Cause::OwnerAbsent {
        kind: long(number).as_str().into(),
        namespace: long(number).as_str().into(),
        name: long(number).as_str().into(),
        uid: Uid::parse(&long(number)).unwrap(),
        proof: Proof::WatchDeleted { resource_version: version() },
    };
    let preconditions =
        Preconditions { resource_version: version(), facts_digest: u64::MAX, must_be_terminating: true };
    let grounds = Grounds {
        decision: 7,
        preconditions,
        propagation_policy: None,
        causes: (0..100).map(cause).collect(),
        cause_count: 100,
        owners: (0..100).map(edge).collect(),
        owner_count: 5000,
        chain: (0..100).map(large_object).collect(),
        ..*Grounds::unknown(7)
    };
    Event::Attempted {
        item: 1,
        age: Duration::from_secs(1),
        end: AttemptEnd {
            target: large_object(number),
            action: ActionKind::Delete,
            outcome: Outcome::Forbidden,
            executor: long(1).as_str().into(),
            http_status: 403,
            message: long(1).repeat(10),
            api_calls: 1,
            audit_id: long(1),
            attempt: 1,
            grounds: Box::new(grounds),
        },
    }
}

/// A world with this many large events in its log.
fn large_world(events: usize) -> World {
    let mut world = world(0);
    let clock = wire(world.service.shared.clock);
    (1..=events).for_each(|number| world.writer.note(&large(number), clock));
    world.writer.publish();
    world
}

#[tokio::test(start_paused = true)]
async fn no_event_and_no_message_of_a_stream_is_larger_than_is_promised() {
    let world = large_world(20);
    for encoding in [EventEncoding::Native, EventEncoding::Cloudevents] {
        let start = Some(Wanted::Oldest(true));
        let request = WatchDecisionsRequest { start, encoding: encoding.into(), max_batch: 256, ..Default::default() };
        let mut stream = world.watch(request).await.unwrap();
        let (mut seen, mut messages) = (0, 0);
        let most = if encoding == EventEncoding::Native { BATCH_MAX_BYTES + 4096 } else { MIB };
        while seen < 20 {
            let message = stream.next().await.unwrap().unwrap();
            assert!(message.encoded_len() <= most, "{}", message.encoded_len());
            messages += 1;
            let Some(Got::Batch(batch)) = message.event else { panic!("no batch") };
            assert!(batch.events.iter().all(|event| event.encoded_len() <= EVENT_MAX_BYTES));
            assert!(batch.events.iter().all(|event| event.owners.len() == 20 && event.owner_count == 5000));
            assert!(batch.cloud_events.iter().all(|event| event.len() <= 2 * EVENT_MAX_BYTES));
            seen += batch.events.len() + batch.cloud_events.len();
        }
        assert_eq!(messages, 20, "two of these events are more than a message takes");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_open_is_sent_in_parts_no_larger_than_is_promised() {
    let world = large_world(20);
    let at = Position { log_id: "election.1".to_owned(), sequence: 0 };
    let large: Vec<_> = world.service.shared.decisions.among(&at, 20).await.unwrap().collect();
    let small = vec![DecisionEvent::default(); 256];
    for (events, fewest) in [(large, 5), (small, 1)] {
        let all = events.len();
        for encoding in [EventEncoding::Native, EventEncoding::Cloudevents] {
            let length =
                |event: DecisionEvent| Looked::of(event).part(encoding, EventView::Full, "cluster").len() + FRAME_BYTES;
            let sent: Vec<Vec<DecisionEvent>> = parts(events.clone()).collect();
            assert_eq!(sent.iter().map(Vec::len).sum::<usize>(), all);
            assert!(sent.len() >= fewest);
            assert!(sent.into_iter().all(|part| part.into_iter().map(length).sum::<usize>() <= MIB));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_page_of_a_list_is_no_larger_than_is_promised_and_pages_have_everything() {
    let world = large_world(20);
    let mut request = ListDecisionsRequest { page_size: 1000, ..Default::default() };
    let (mut listed, mut pages) = (Vec::new(), 0);
    loop {
        let answer = world.service.list_decisions(Request::new(request.clone())).await.unwrap().into_inner();
        assert!(answer.encoded_len() <= MIB + 64 * 1024, "{}", answer.encoded_len());
        listed.extend(answer.events.into_iter().map(|event| event.position.unwrap().sequence));
        pages += 1;
        if answer.next_page_token.is_empty() {
            break;
        }
        request.page_token = answer.next_page_token;
    }
    assert_eq!(listed, (1..=20).rev().collect::<Vec<u64>>());
    assert!(pages > 2, "{pages}");
}

#[tokio::test(start_paused = true)]
async fn a_decision_with_many_phases_is_told_in_parts_that_fit_together() {
    let large = large_world(20);
    let mut small = world(0);
    small.log(&["x"; PHASES_MAX + 500]);
    for (world, all, id) in [(large, 20, 7), (small, PHASES_MAX as u64 + 500, 7)] {
        let mut request = GetDecisionRequest { decision_id: format!("{id:016x}"), before: None };
        let mut told = Vec::new();
        loop {
            let answer = world.service.get_decision(Request::new(request.clone())).await.unwrap().into_inner();
            assert!(answer.encoded_len() <= 2 * MIB && answer.events.len() <= PHASES_MAX);
            let part = answer.events.into_iter().map(|event| event.position.unwrap().sequence);
            told.splice(0..0, part);
            request.before = answer.searched_from;
            if request.before.is_none() {
                break;
            }
            assert!(told.len() < usize::try_from(all).unwrap());
        }
        assert_eq!(told, (1..=all).collect::<Vec<u64>>());
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_has_as_many_events_as_were_asked_for_and_at_most_256() {
    let mut world = world(0);
    world.log(&["x"; 300]);
    for (max_batch, expected) in [(0, 64), (1, 1), (100, 100), (257, 256), (u32::MAX, 256)] {
        let start = Some(Wanted::Oldest(true));
        let mut stream = world.watch(WatchDecisionsRequest { start, max_batch, ..Default::default() }).await.unwrap();
        assert_eq!(names(next(&mut stream).await.0).len(), expected);
    }
}

#[test]
fn bookmarks_come_every_one_to_sixty_seconds() {
    let seconds = |seconds: i64| Some(prost_types::Duration { seconds, nanos: 0 });
    for (wanted, expected) in [(None, 5), (seconds(0), 1), (seconds(7), 7), (seconds(61), 60)] {
        assert_eq!(bookmark_interval(wanted).unwrap(), Duration::from_secs(expected));
    }
    assert_eq!(reason(&bookmark_interval(seconds(-1)).unwrap_err()), "FIELD_INVALID");
}

#[tokio::test(start_paused = true)]
async fn a_page_has_as_many_events_as_were_asked_for_and_at_most_1000() {
    let mut world = world(0);
    world.log(&["x"; 1100]);
    for (page_size, expected) in [(0, 100), (1, 1), (999, 999), (1001, 1000), (i32::MAX, 1000)] {
        let request = ListDecisionsRequest { page_size, ..Default::default() };
        let answer = world.service.list_decisions(Request::new(request)).await.unwrap().into_inner();
        assert_eq!(answer.events.len(), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_page_looks_at_65536_positions() {
    let world = world_with(0, crate::decisions::tests::mirror_of_many(70_000));
    let include = vec![DecisionFilter { phases: vec![Phase::Leased.into()], ..Default::default() }];
    let mut request = ListDecisionsRequest { include, ..Default::default() };
    let answer = world.service.list_decisions(Request::new(request.clone())).await.unwrap().into_inner();
    let before = place::parse(&answer.next_page_token).unwrap().before;
    assert!(answer.events.is_empty() && (70_001 - before).abs_diff(65_536) < STEP_IN_STREAM, "{before}");
    request.page_token = answer.next_page_token;
    let answer = world.service.list_decisions(Request::new(request)).await.unwrap().into_inner();
    assert!(answer.next_page_token.is_empty());
}

#[tokio::test(start_paused = true)]
async fn filters_have_a_bound() {
    let world = world(0);
    let conditions = |count: usize| vec![DecisionFilter { phases: vec![1; count], ..Default::default() }];
    let expression = |cel: &str| DecisionFilter { cel: cel.to_owned(), ..Default::default() };
    let long = format!("event.executor == '{}'", "e".repeat(1024 - 20));
    let cases = [
        (conditions(1000), true),
        (conditions(1001), false),
        (vec![expression("true"); 16], true),
        (vec![expression("true"); 17], false),
        (vec![expression(&long)], true),
        (vec![expression(&format!("{long} "))], false),
    ];
    for (filters, is_taken) in cases {
        for request in [
            WatchDecisionsRequest { include: filters.clone(), ..Default::default() },
            WatchDecisionsRequest { exclude: filters, ..Default::default() },
        ] {
            assert_eq!(world.watch(request).await.is_ok(), is_taken);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_has_at_most_16_streams_at_a_time() {
    let world = world(0);
    let mut streams = Vec::new();
    for _ in 0..16 {
        streams.push(world.from(Wanted::Now(true)).await);
    }
    let Err(status) = world.watch(WatchDecisionsRequest::default()).await else { panic!("one too many") };
    assert_eq!(reason(&status), "LIMIT_EXCEEDED");
}
