//! Followers of a hand-written log, and of a leader with work.

use super::*;
use crate::clock::wire;
use crate::decisions::{DecisionLog, Writer};
use crate::grpc::followers::UNREAD_FOR;
use crate::grpc::small_world::{config, facts, reason, secret, shared, uid_of};
use crate::messages::Leadership;
use engine::leader::{Event, Grounds, Input, Leader, Mode, Output};
use engine::time::Time;
use engine::work::Term;
use prost::bytes::Bytes;
use proto::cloudevents::v1::CloudEvent;
use proto::decision::v1beta1::watch_decisions_request::Start as Wanted;
use proto::decision::v1beta1::watch_decisions_response::Event as Got;
use proto::r#type::v1beta1::ObjectFilter;
use runtime::tasks::Tasks;
use tokio::sync::watch;
use tonic::Code;
use tonic_types::StatusExt as _;

mod bounds;
mod parity;
mod starts;

type Answers = BoxStream<'static, Result<WatchDecisionsResponse, Status>>;

/// The service on a leader in observe mode: `dependents` of one deleted owner.
struct World {
    service: Decisions,
    writer: Writer,
    leadership: watch::Sender<Leadership>,
    _tasks: Tasks,
}

fn term(number: u64) -> Term {
    Term { election: "election".into(), number }
}

fn leadership(number: u64) -> Leadership {
    Leadership { leading: true, term: Some(term(number)), holder: Some("replica-a".to_owned()), ..Default::default() }
}

fn world(dependents: usize) -> World {
    world_with(dependents, DecisionLog::in_memory())
}

fn world_with(dependents: usize, log: DecisionLog) -> World {
    let mut leader = Leader::new(config(Mode::Observe), 7);
    let dependent = |number: usize| secret(&format!("dependent-{number:05}"), &["owner"]);
    let objects = [secret("owner", &[])].into_iter().chain((0..dependents).map(dependent)).collect();
    let (leadership, known) = watch::channel(leadership(1));
    let mut writer = Writer::new(&log);
    let mut inputs = vec![Input::TermGained(term(1))];
    inputs.extend(facts(objects, "owner"));
    let mut events = Vec::new();
    for input in inputs {
        leader.handle(Time::ZERO, input);
        while let Some(output) = leader.poll() {
            if let Output::Event(event) = output {
                events.push(event);
            }
        }
    }
    let shared = shared(leader, log, known);
    events.iter().for_each(|event| writer.note(event, wire(shared.clock)));
    writer.publish();
    serving(shared, writer, leadership)
}

fn serving(shared: Arc<Shared>, writer: Writer, leadership: watch::Sender<Leadership>) -> World {
    let mut tasks = Tasks::new();
    let (writers, followers) = Followers::new();
    tasks.spawn_until_end("stream writers", writers.run());
    World { service: Decisions::new(shared, followers), writer, leadership, _tasks: tasks }
}

impl World {
    async fn watch(&self, request: WatchDecisionsRequest) -> Result<Answers, Status> {
        Ok(self.service.watch_decisions(Request::new(request)).await?.into_inner())
    }

    async fn from(&self, start: Wanted) -> Answers {
        self.watch(WatchDecisionsRequest { start: Some(start), ..Default::default() }).await.unwrap()
    }

    fn log(&mut self, names: &[&str]) {
        for name in names {
            let target = object_ref(name);
            let event = Event::Withdrawn {
                item: 1,
                target,
                action: engine::work::ActionKind::Delete,
                replaced: false,
                grounds: Grounds::unknown(7),
            };
            self.writer.note(&event, wire(self.service.shared.clock));
        }
        self.writer.publish();
    }

    fn change_leader(&mut self, next: Option<u64>) {
        let clock = wire(self.service.shared.clock);
        self.writer.note(&Event::TermLost, clock);
        if let Some(next) = next {
            self.writer.note(&Event::TermGained(term(next)), clock);
        }
        self.leadership.send_replace(next.map(leadership).unwrap_or_default());
        self.writer.publish();
    }
}

fn object_ref(name: &str) -> engine::object::ObjectRef {
    engine::object::ObjectRef {
        group: "".into(),
        version: "v1".into(),
        resource: "secrets".into(),
        kind: "Secret".into(),
        namespace: "shop".into(),
        name: name.into(),
        uid: uid_of(name),
    }
}

fn after(sequence: u64) -> Wanted {
    Wanted::After(Position { log_id: "election.1".to_owned(), sequence })
}

/// The next message, with its position.
async fn next(answers: &mut Answers) -> (Got, Option<u64>) {
    let answer = answers.next().await.expect("the stream goes on").expect("the stream is well");
    (answer.event.unwrap(), answer.position.map(|at| at.sequence))
}

async fn failed(answers: &mut Answers) -> Status {
    loop {
        match answers.next().await {
            Some(Ok(_)) => {}
            Some(Err(status)) => return status,
            None => panic!("the stream ended well"),
        }
    }
}

fn names(got: Got) -> Vec<String> {
    let Got::Batch(batch) = got else { panic!("no batch: {got:?}") };
    batch.events.into_iter().map(|event| event.target.unwrap().name).collect()
}

fn bookmark(snapshot_complete: bool) -> Got {
    Got::Bookmark(watch_decisions_response::Bookmark { snapshot_complete, expression_errors: 0 })
}

#[tokio::test(start_paused = true)]
async fn a_follower_gets_every_event_once_in_order_from_wherever_it_starts() {
    let mut world = world(3);
    let mut oldest = world.from(Wanted::Oldest(true)).await;
    let (got, position) = next(&mut oldest).await;
    assert_eq!((names(got).len(), position), (3, Some(3)));
    let mut later = world.from(after(1)).await;
    assert_eq!(names(next(&mut later).await.0), ["dependent-00001", "dependent-00002"]);
    let mut now = world.from(Wanted::Now(true)).await;
    assert_eq!(next(&mut now).await, (bookmark(false), Some(3)), "the first message tells who answers, and where");

    world.log(&["x", "y"]);
    for stream in [&mut oldest, &mut later, &mut now] {
        let (got, position) = next(stream).await;
        assert_eq!((names(got), position), (vec!["x".to_owned(), "y".to_owned()], Some(5)));
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_open_comes_first_then_the_word_that_it_was_all_then_what_happens() {
    let mut world = world(150);
    let mut stream = world.from(Wanted::OpenThenFollow(true)).await;
    let mut open = Vec::new();
    loop {
        match next(&mut stream).await {
            (got @ Got::Batch(_), position) => {
                assert_eq!(position, None, "half of what is open is no place to go on from");
                open.extend(names(got));
            }
            (got, position) => {
                assert_eq!((got, position), (bookmark(true), Some(150)));
                break;
            }
        }
    }
    assert_eq!(open.len(), 150);
    assert!(open.is_sorted());
    world.log(&["x"]);
    assert_eq!(names(next(&mut stream).await.0), ["x"]);
}

#[tokio::test(start_paused = true)]
async fn a_quiet_stream_shows_where_it_is_also_where_filters_let_nothing_through() {
    let mut world = world(0);
    let nothing = DecisionFilter { phases: vec![Phase::Leased.into()], ..Default::default() };
    let request = WatchDecisionsRequest { include: vec![nothing], ..Default::default() };
    let mut stream = world.watch(request).await.unwrap();
    assert_eq!(next(&mut stream).await, (bookmark(false), Some(0)));
    let started = tokio::time::Instant::now();
    world.log(&["x", "y"]);
    assert_eq!(next(&mut stream).await, (bookmark(false), Some(2)));
    assert_eq!(started.elapsed(), BOOKMARK_DEFAULT);
}

#[tokio::test(start_paused = true)]
async fn filters_look_at_the_target_the_phase_the_action_and_the_cause() {
    let mut world = world(2);
    world.log(&["x"]);
    let one = |name: &str| ObjectFilter { uids: vec![format!("uid-{name}")], ..Default::default() };
    let phase = |phase: Phase| DecisionFilter { phases: vec![phase.into()], ..Default::default() };
    let target = |name: &str| DecisionFilter { targets: vec![one(name)], ..Default::default() };
    let cause = DecisionFilter { causes: vec![Cause::OwnersGone.into()], ..Default::default() };
    let cases = [
        (vec![phase(Phase::Proposed)], vec![], vec!["dependent-00000", "dependent-00001"]),
        (vec![phase(Phase::Superseded)], vec![], vec!["x"]),
        (vec![], vec![cause], vec!["x"]),
        (vec![target("x"), target("dependent-00001")], vec![], vec!["dependent-00001", "x"]),
        (vec![], vec![target("x"), target("dependent-00001")], vec!["dependent-00000"]),
    ];
    for (include, exclude, expected) in cases {
        let request =
            WatchDecisionsRequest { start: Some(Wanted::Oldest(true)), include, exclude, ..Default::default() };
        let mut stream = world.watch(request.clone()).await.unwrap();
        assert_eq!(names(next(&mut stream).await.0), expected, "{request:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_event_tells_its_cause_its_owners_and_what_the_write_will_rest_on() {
    let world = world(1);
    let mut stream = world.from(Wanted::Oldest(true)).await;
    let (Got::Batch(batch), _) = next(&mut stream).await else { panic!("no batch") };
    let event = &batch.events[0];
    assert_eq!((event.phase(), event.cause()), (Phase::Proposed, Cause::OwnersGone));
    assert_eq!(event.root.as_ref().unwrap().name, "owner");
    assert_eq!(event.cause_chain.len(), 1);
    assert_eq!(event.owners.len(), 1);
    assert_eq!(event.preconditions.as_ref().unwrap().resource_version, "5");
    let asked = GetDecisionRequest { decision_id: event.decision_id.clone(), before: None };
    let got = world.service.get_decision(Request::new(asked)).await.unwrap().into_inner();
    assert_eq!(got.events, batch.events);
    let unknown = GetDecisionRequest { decision_id: "0".to_owned(), before: None };
    let status = world.service.get_decision(Request::new(unknown)).await.unwrap_err();
    assert_eq!((status.code(), reason(&status).as_str()), (Code::NotFound, "DECISION_NOT_FOUND"));
}

#[tokio::test(start_paused = true)]
async fn a_cloud_event_carries_the_whole_event_and_sorts_as_text() {
    let mut world = world(0);
    world.log(&["x"; 12]);
    let request = WatchDecisionsRequest {
        start: Some(Wanted::Oldest(true)),
        encoding: EventEncoding::Cloudevents.into(),
        ..Default::default()
    };
    let mut stream = world.watch(request).await.unwrap();
    let (Got::Batch(batch), _) = next(&mut stream).await else { panic!("no batch") };
    let events: Vec<CloudEvent> =
        batch.cloud_events.iter().map(|bytes| CloudEvent::decode(bytes.as_slice()).unwrap()).collect();
    assert_eq!(events.len(), 12);
    assert_eq!(events[0].source, "/clusters/cluster/gc");
    assert_eq!(events[0].r#type, "dev.ownergraph.decision.superseded.v1beta1");
    assert_eq!(events[0].id, "election.1/1");
    let sequence = |event: &CloudEvent| format!("{:?}", event.attributes["sequence"]);
    assert!(events.iter().map(sequence).is_sorted());
    assert!(!events[0].attributes.contains_key("traceparent"), "of what has no cause no cascade is known");
    let Some(proto::cloudevents::v1::cloud_event::Data::ProtoData(data)) = &events[0].data else { panic!("no data") };
    assert_eq!(DecisionEvent::decode(data.value.as_slice()).unwrap().target.unwrap().name, "x");
}

#[tokio::test(start_paused = true)]
async fn another_leader_is_another_log_and_that_is_said() {
    let mut world = world(2);
    let mut strict = world.from(Wanted::Now(true)).await;
    let request = WatchDecisionsRequest { accept_gaps: true, start: Some(Wanted::Now(true)), ..Default::default() };
    let mut lenient = world.watch(request).await.unwrap();
    for stream in [&mut strict, &mut lenient] {
        assert_eq!(next(stream).await, (bookmark(false), Some(2)));
    }
    world.change_leader(Some(2));
    let status = failed(&mut strict).await;
    assert_eq!((status.code(), reason(&status).as_str()), (Code::OutOfRange, "POSITION_COMPACTED"));
    let (Got::Gap(gap), None) = next(&mut lenient).await else { panic!("no gap") };
    assert_eq!((gap.reason.as_str(), gap.next.unwrap().log_id.as_str()), ("LOG_REPLACED", "election.2"));
    assert_eq!(names(next(&mut lenient).await.0).len(), 2, "what is open comes again");
    assert_eq!(next(&mut lenient).await, (bookmark(true), Some(0)));

    world.change_leader(None);
    let status = failed(&mut lenient).await;
    assert_eq!((status.code(), reason(&status).as_str()), (Code::Unavailable, "NO_LEADER"));
    let Err(status) = world.watch(WatchDecisionsRequest::default()).await else { panic!("a standby has no log") };
    assert_eq!(status.code(), Code::Unavailable);
}

#[tokio::test(start_paused = true)]
async fn an_old_position_is_refused_or_becomes_a_gap_with_what_is_open() {
    let world = world(2);
    let old = Wanted::After(Position { log_id: "election.0".to_owned(), sequence: 9 });
    let request = |accept_gaps| WatchDecisionsRequest { start: Some(old.clone()), accept_gaps, ..Default::default() };
    let Err(status) = world.watch(request(false)).await else { panic!("an old position is no start") };
    assert_eq!(reason(&status), "POSITION_COMPACTED");
    let mut stream = world.watch(request(true)).await.unwrap();
    assert!(matches!(next(&mut stream).await, (Got::Gap(gap), None) if gap.reason == "LOG_REPLACED"));
    assert_eq!(names(next(&mut stream).await.0).len(), 2);
    assert_eq!(next(&mut stream).await, (bookmark(true), Some(2)));
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_does_not_read_gets_its_position_and_disturbs_no_other() {
    let mut world = world(0);
    let mut lazy = world.from(Wanted::Now(true)).await;
    let mut eager = world.from(Wanted::Now(true)).await;
    assert_eq!(next(&mut lazy).await, (bookmark(false), Some(0)));
    assert_eq!(next(&mut eager).await, (bookmark(false), Some(0)));
    let started = tokio::time::Instant::now();
    while started.elapsed() <= UNREAD_FOR + 2 * BOOKMARK_DEFAULT {
        world.log(&["x"]);
        assert_eq!(names(next(&mut eager).await.0), ["x"]);
        next(&mut eager).await;
    }
    let status = failed(&mut lazy).await;
    assert_eq!((status.code(), reason(&status).as_str()), (Code::ResourceExhausted, "SLOW_CONSUMER"));
    let details = status.get_error_details();
    let metadata = &details.error_info().unwrap().metadata;
    assert_eq!((metadata["logId"].as_str(), metadata["lastSequence"].as_str()), ("election.1", "1"));
    assert!(lazy.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_stop_is_announced_and_ends_the_stream_well() {
    let world = world(1);
    let mut stream = world.from(Wanted::Oldest(true)).await;
    next(&mut stream).await;
    world.service.shared.shutdown.request();
    assert!(matches!(next(&mut stream).await, (Got::GoingAway(_), Some(1))));
    assert!(stream.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn the_log_is_listed_the_newest_first_in_pages() {
    let all = 2 * STEP + 1;
    let mut world = world(usize::try_from(all).unwrap());
    let mut request = ListDecisionsRequest { page_size: 700, ..Default::default() };
    let mut listed = Vec::new();
    loop {
        let answer = world.service.list_decisions(Request::new(request.clone())).await.unwrap().into_inner();
        listed.extend(answer.events.into_iter().map(|event| event.position.unwrap().sequence));
        if answer.next_page_token.is_empty() {
            break;
        }
        request.page_token = answer.next_page_token;
        // New events are on no later page.
        world.log(&["later"]);
    }
    assert_eq!(listed, (1..=all).rev().collect::<Vec<u64>>());
}

#[tokio::test(start_paused = true)]
async fn only_what_is_wanted_is_listed_and_a_token_is_for_one_question_and_one_log() {
    let mut world = world(2);
    world.log(&["x", "y", "z"]);
    let list = async |world: &World, request: &ListDecisionsRequest| {
        let answer = world.service.list_decisions(Request::new(request.clone())).await?.into_inner();
        let names = answer.events.into_iter().map(|event| event.target.unwrap().name).collect::<Vec<_>>();
        Ok::<_, Status>((names.join(" "), answer.next_page_token))
    };
    let include = vec![DecisionFilter { phases: vec![Phase::Superseded.into()], ..Default::default() }];
    let request = ListDecisionsRequest { include, page_size: 2, ..Default::default() };
    let (names, page_token) = list(&world, &request).await.unwrap();
    assert_eq!(names, "z y");
    let next = ListDecisionsRequest { page_token, ..request.clone() };
    assert_eq!(list(&world, &next).await.unwrap(), ("x".to_owned(), String::new()));

    let unnamed = ListDecisionsRequest { include: Vec::new(), ..next.clone() };
    let none = ListDecisionsRequest { page_token: "one".to_owned(), ..request.clone() };
    for (request, expected) in [(&unnamed, "PAGE_TOKEN_MISMATCH"), (&none, "TOKEN_MALFORMED")] {
        assert_eq!(reason(&list(&world, request).await.unwrap_err()), expected);
    }
    world.change_leader(Some(2));
    assert_eq!(reason(&list(&world, &next).await.unwrap_err()), "PAGE_TOKEN_EXPIRED");
}

#[tokio::test(start_paused = true)]
async fn readers_of_the_same_share_one_encoding_and_filters_share_one_look() {
    let mut world = world(0);
    world.log(&["x", "y", "z"]);
    let recent = &world.service.recent;
    let at = Position { log_id: "election.1".to_owned(), sequence: 0 };
    let Ok(crate::decisions::Tail::Events(events)) = world.service.shared.decisions.after(&at, encode::most(64)).await
    else {
        panic!("no events")
    };
    let [one, other] = [(); 2].map(|()| recent.batch("election.1", &events));
    assert_eq!(one.as_ptr(), other.as_ptr());
    let [one, other] = [(); 2].map(|()| recent.look("election.1", &events));
    assert!(one.iter().zip(&other).all(|(one, other)| Arc::ptr_eq(one, other)));
    let other = recent.look("election.2", &events);
    assert!(!one.iter().zip(&other).any(|(one, other)| Arc::ptr_eq(one, other)), "positions are of one log");

    let plain = WatchDecisionsRequest { start: Some(Wanted::Oldest(true)), ..Default::default() };
    let all = DecisionFilter { cel: "event.phase == 'SUPERSEDED'".to_owned(), ..Default::default() };
    let filtered = WatchDecisionsRequest { include: vec![all], ..plain.clone() };
    let plain = next(&mut world.watch(plain).await.unwrap()).await;
    assert_eq!(plain, next(&mut world.watch(filtered).await.unwrap()).await);
    let (Got::Batch(batch), Some(3)) = plain else { panic!("no batch: {plain:?}") };
    assert_eq!(
        batch.events.iter().map(|event| event.position.as_ref().unwrap().sequence).collect::<Vec<_>>(),
        [1, 2, 3]
    );
}

#[tokio::test(start_paused = true)]
async fn an_expression_that_fails_is_counted_in_bookmarks() {
    let mut world = world(0);
    world.log(&["x", "y"]);
    let none = DecisionFilter { cel: "event.cause_chain[0].name == 'x'".to_owned(), ..Default::default() };
    let request =
        WatchDecisionsRequest { start: Some(Wanted::Oldest(true)), include: vec![none], ..Default::default() };
    let mut stream = world.watch(request).await.unwrap();
    let (Got::Bookmark(told), Some(2)) = next(&mut stream).await else { panic!("no bookmark") };
    assert_eq!(told.expression_errors, 2);
}

#[tokio::test(start_paused = true)]
async fn a_filter_for_what_no_event_has_is_refused() {
    let world = world(0);
    for (field, filter) in [
        ("include[0].phases", DecisionFilter { phases: vec![99], ..Default::default() }),
        ("include[0].kinds", DecisionFilter { kinds: vec![1, 0], ..Default::default() }),
        ("include[0].causes", DecisionFilter { causes: vec![-1], ..Default::default() }),
    ] {
        let request = WatchDecisionsRequest { include: vec![filter.clone()], ..Default::default() };
        let Err(refused) = world.watch(request).await else { panic!("{field} is taken") };
        assert_eq!((refused.code(), reason(&refused).as_str()), (Code::InvalidArgument, "FIELD_INVALID"));
        assert_eq!(refused.get_error_details().error_info().unwrap().metadata["field"], field);
        let request = ListDecisionsRequest { include: vec![filter], ..Default::default() };
        assert!(world.service.list_decisions(Request::new(request)).await.is_err());
    }
}

#[test]
fn a_compressed_message_is_the_same_once_it_is_read() {
    let batch = Bytes::from(vec![7; 100_000]);
    let plain = Encoded::with_field(&WatchDecisionsResponse::default(), 1, batch);
    let parts: Vec<u8> = plain.clone().parts().concat();
    let packed = plain.compressed().parts().concat();
    assert!(packed.len() < parts.len() / 8, "{}", packed.len());
    assert_eq!((packed[0], packed[1..5].to_vec()), (1, ((packed.len() - 5) as u32).to_be_bytes().to_vec()));
    let mut read = Vec::new();
    std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(&packed[5..]), &mut read).unwrap();
    assert_eq!(read, parts[5..]);
    let short = Encoded::of(&WatchDecisionsResponse::default());
    assert_eq!(short.clone().compressed().parts().concat(), short.parts().concat());
}
