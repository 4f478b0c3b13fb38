//! Starts of readers, gaps, and views of an event.

use super::*;
use crate::decisions::tests::mirror_of_many;
use proto::cloudevents::v1::cloud_event::cloud_event_attribute_value::Attr;
use runtime::traces::trace_of;

#[tokio::test(start_paused = true)]
async fn a_loss_in_memory_is_counted_where_the_log_before_was_of_the_same_process() {
    let mut world = world(3);
    world.change_leader(Some(2));
    let start = |log_id: &str| Some(Wanted::After(Position { log_id: log_id.to_owned(), sequence: 1 }));
    for (log_id, lost) in [("election.1", 2), ("election.0", 0)] {
        let request = WatchDecisionsRequest { start: start(log_id), accept_gaps: true, ..Default::default() };
        let mut stream = world.watch(request).await.unwrap();
        let (Got::Gap(gap), None) = next(&mut stream).await else { panic!("no gap") };
        assert_eq!((gap.reason.as_str(), gap.lost, gap.until.is_some()), ("LOG_REPLACED", lost, true));
    }
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_does_not_lead_gets_a_reader_over_a_loss() {
    let world = world(3);
    world.leadership.send_replace(Leadership::default());
    let start = Some(Wanted::After(Position { log_id: "election.0".to_owned(), sequence: 1 }));
    let request = WatchDecisionsRequest { start, accept_gaps: true, ..Default::default() };
    let mut stream = world.watch(request.clone()).await.unwrap();
    let first = stream.next().await.unwrap().unwrap();
    assert!(matches!(&first.event, Some(Got::Gap(gap)) if gap.next.as_ref().unwrap().sequence == 4));
    assert_eq!(failed(&mut stream).await.code(), Code::Unavailable);
    let start = first.position.map(Wanted::After);
    let mut stream = world.watch(WatchDecisionsRequest { start, ..request }).await.unwrap();
    assert_eq!(next(&mut stream).await, (bookmark(false), Some(3)), "it goes on behind it");
}

#[tokio::test(start_paused = true)]
async fn a_reader_may_start_at_a_time() {
    let world = world_with(0, mirror_of_many(40_000));
    let at = |seconds: i64, nanos: i32| {
        let start = Some(Wanted::StartTime(prost_types::Timestamp { seconds, nanos }));
        WatchDecisionsRequest { start, max_batch: 2, ..Default::default() }
    };
    for (seconds, first) in [(0, 1), (777, 777), (39_995, 39_995)] {
        let mut stream = world.watch(at(seconds, 0)).await.unwrap();
        let (Got::Batch(batch), _) = next(&mut stream).await else { panic!("no batch") };
        assert_eq!(batch.events[0].position.as_ref().unwrap().sequence, first);
    }
    let mut stream = world.watch(at(50_000, 0)).await.unwrap();
    assert_eq!(next(&mut stream).await, (bookmark(false), Some(40_000)));
    let Err(status) = world.watch(at(i64::MAX, -1)).await else { panic!("that is no time") };
    assert_eq!(reason(&status), "FIELD_INVALID");
}

#[tokio::test(start_paused = true)]
async fn a_decision_that_is_not_in_memory_is_looked_for_in_the_stream_part_by_part() {
    let world = world_with(0, mirror_of_many(40_000));
    let mut request = GetDecisionRequest { decision_id: "100".to_owned(), before: None };
    let mut searched = Vec::new();
    let found = loop {
        let answer = world.service.get_decision(Request::new(request.clone())).await.unwrap().into_inner();
        if !answer.events.is_empty() {
            break answer.events;
        }
        searched.push(answer.searched_from.as_ref().unwrap().sequence);
        request.before = answer.searched_from;
    };
    assert_eq!(found[0].position.as_ref().unwrap().sequence, 100);
    assert_eq!(searched, [40_000 - 9 - IN_STREAM_MAX, 40_000 - 9 - 2 * IN_STREAM_MAX]);

    request.decision_id = "none".to_owned();
    let status = world.service.get_decision(Request::new(request.clone())).await.unwrap_err();
    assert_eq!(reason(&status), "DECISION_NOT_FOUND");
    request.before = Some(Position { log_id: "another".to_owned(), sequence: 1 });
    let status = world.service.get_decision(Request::new(request)).await.unwrap_err();
    assert_eq!(reason(&status), "POSITION_COMPACTED");
}

#[tokio::test(start_paused = true)]
async fn a_basic_view_has_no_grounds_and_filters_see_all_of_them() {
    let world = world(1);
    let include = vec![DecisionFilter { cel: "size(event.cause_chain) == 1".to_owned(), ..Default::default() }];
    for (view, is_full) in [(EventView::Unspecified, true), (EventView::Full, true), (EventView::Basic, false)] {
        let (start, include) = (Some(Wanted::Oldest(true)), include.clone());
        let request =
            WatchDecisionsRequest { start, view: view.into(), include: include.clone(), ..Default::default() };
        let mut stream = world.watch(request).await.unwrap();
        let (Got::Batch(batch), _) = next(&mut stream).await else { panic!("no batch") };
        let request = ListDecisionsRequest { view: view.into(), include, ..Default::default() };
        let listed = world.service.list_decisions(Request::new(request)).await.unwrap().into_inner();
        assert_eq!(listed.events, batch.events);
        let event = &batch.events[0];
        assert_eq!(event.root.as_ref().unwrap().name, "owner");
        assert_eq!((event.owner_count, event.reason_count), (1, 1));
        let grounds = [event.owners.len(), event.reasons.len(), event.cause_chain.len()];
        assert_eq!(grounds, if is_full { [1; 3] } else { [0; 3] });
        assert_eq!(event.preconditions.is_some(), is_full);
    }
    let request = WatchDecisionsRequest { view: 99, ..Default::default() };
    let Err(status) = world.watch(request).await else { panic!("there is no such view") };
    assert_eq!(reason(&status), "FIELD_INVALID");
}

#[tokio::test(start_paused = true)]
async fn a_cloud_event_names_its_schema_and_the_trace_of_its_cascade() {
    let world = world(1);
    let (start, encoding) = (Some(Wanted::Oldest(true)), EventEncoding::Cloudevents.into());
    let request = WatchDecisionsRequest { start, encoding, view: EventView::Basic.into(), ..Default::default() };
    let mut stream = world.watch(request).await.unwrap();
    let (Got::Batch(batch), _) = next(&mut stream).await else { panic!("no batch") };
    let event = CloudEvent::decode(batch.cloud_events[0].as_slice()).unwrap();
    assert_eq!(event.r#type, "dev.ownergraph.decision.proposed.v1beta1");
    let schema = Attr::CeUri("https://ownergraph.dev/proto/ownergraph.decision.v1beta1.DecisionEvent".to_owned());
    assert_eq!(event.attributes["dataschema"].attr, Some(schema));
    let Some(Attr::CeString(parent)) = &event.attributes["traceparent"].attr else { panic!("no traceparent") };
    let trace = trace_of(&uid_of("owner"));
    assert!(parent.starts_with(&format!("00-{trace}-")) && parent.len() == 55, "{parent}");
}
