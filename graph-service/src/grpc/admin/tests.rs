//! Reads and streams of the status of a leader with a few pauses.

use super::*;
use crate::grpc::followers::STREAM_AGE;
use crate::grpc::small_world::{config, reason, shared};
use crate::messages::Control;
use crate::messages::Leadership;
use engine::guard::{Guard, GuardId, GuardKind, Recorded, Rule};
use engine::leader::{Input, Leader, Mode};
use engine::object::Uid;
use engine::time::Time;
use futures::StreamExt as _;
use prost::Message as _;
use proto::admin::v1beta1::watch_status_response::{Event, GoingAway};
use runtime::tasks::Tasks;
use tokio::sync::{mpsc, watch};

mod bundle;
mod bypass;

type Answers = BoxStream<'static, Result<WatchStatusResponse, Status>>;

struct World {
    service: Admin,
    _tasks: Tasks,
    _leadership: watch::Sender<Leadership>,
    _control: mpsc::Receiver<Control>,
}

fn pause(number: usize, filters: usize) -> Guard {
    let filter = |at: usize| {
        let namespace = |n: usize| format!("{}-{at}-{n}", "n".repeat(50)).as_str().into();
        engine::scope::Filter {
            resources: Vec::new(),
            namespaces: (0..100).map(namespace).collect(),
            ..engine::scope::Filter::default()
        }
    };
    Guard {
        id: GuardId { kind: GuardKind::Pause, name: format!("p{number:05}").as_str().into() },
        rule: Rule::Hold,
        uid: Uid::parse(&format!("uid-{number}")).unwrap(),
        scope: engine::scope::Scope { targets: (0..filters).map(filter).collect() },
        reason: "restoring".to_owned(),
        created: Duration::from_secs(1),
        lifetime: Some(Duration::from_secs(24 * 60 * 60)),
        resource_version: engine::object::ResourceVersion::parse("5"),
        generation: 1,
        elapsed: Duration::ZERO,
        read_at: Duration::ZERO,
        recorded: Recorded::default(),
        problem: String::new(),
        actor: String::new(),
    }
}

fn world(pauses: impl IntoIterator<Item = Guard>) -> World {
    let mut leader = Leader::new(config(Mode::Observe), 7);
    for pause in pauses {
        leader.handle(Time::ZERO, Input::GuardSeen(pause));
    }
    let (leadership, known) = watch::channel(Leadership::default());
    serving(shared(leader, DecisionLog::in_memory(), known), leadership)
}

fn serving(shared: Arc<Shared>, leadership: watch::Sender<Leadership>) -> World {
    let nowhere = tower::service_fn(|_: http::Request<kube::client::Body>| async {
        Err::<http::Response<kube::client::Body>, _>(std::io::Error::other("there is no API server"))
    });
    let (control, taken) = mpsc::channel(1);
    let client = kube::Client::new(nowhere, "default");
    let press = Press { mode: Mode::Enforce, client, control, reader: shared.reader.clone() };
    let mut tasks = Tasks::new();
    let (writers, followers) = Followers::new();
    tasks.spawn_until_end("stream writers", writers.run());
    let service = Admin::new(shared, press, followers);
    World { service, _tasks: tasks, _leadership: leadership, _control: taken }
}

impl World {
    async fn watch(&self, request: WatchStatusRequest) -> Answers {
        self.service.watch_status(Request::new(request)).await.unwrap().into_inner()
    }

    fn change(&self, number: usize) {
        self.service.shared.reader.alter(|leader| leader.handle(Time::ZERO, Input::GuardSeen(pause(number, 0))));
    }
}

async fn status(answers: &mut Answers) -> GetStatusResponse {
    let answer = answers.next().await.expect("the stream goes on").expect("the stream is well");
    let Some(Event::Status(status)) = answer.event else { panic!("{answer:?}") };
    status
}

fn seconds(seconds: i64) -> Option<prost_types::Duration> {
    Some(prost_types::Duration { seconds, nanos: 0 })
}

#[tokio::test(start_paused = true)]
async fn the_status_comes_at_once_then_when_it_changes_and_as_a_heartbeat() {
    let world = world([]);
    let begun = Instant::now();
    let mut answers = world.watch(WatchStatusRequest::default()).await;
    assert_eq!(status(&mut answers).await.pauses.len(), 0);
    assert_eq!(begun.elapsed(), Duration::ZERO);
    world.change(1);
    world.change(2);
    assert_eq!(status(&mut answers).await.pauses.len(), 2);
    let changed = Instant::now();
    assert!(begun.elapsed() <= Duration::from_secs(2), "{:?}", begun.elapsed());
    assert_eq!(status(&mut answers).await.pauses.len(), 2);
    let quiet = changed.elapsed();
    assert!((Duration::from_secs(29)..=Duration::from_secs(31)).contains(&quiet), "{quiet:?}");
}

#[tokio::test(start_paused = true)]
async fn messages_are_as_far_apart_as_is_asked_for() {
    let world = world([]);
    let mut answers =
        world.watch(WatchStatusRequest { min_interval: seconds(10), heartbeat_interval: seconds(0) }).await;
    status(&mut answers).await;
    let told = Instant::now();
    world.change(1);
    assert_eq!(status(&mut answers).await.pauses.len(), 1);
    assert_eq!(told.elapsed().as_secs(), 10);
    let request = WatchStatusRequest { min_interval: seconds(-1), ..Default::default() };
    let refused = world.service.watch_status(Request::new(request)).await.err().unwrap();
    assert_eq!(reason(&refused), "FIELD_INVALID");
}

#[tokio::test(start_paused = true)]
async fn an_old_stream_and_a_stop_are_announced() {
    let world = world([]);
    let begun = Instant::now();
    let mut answers = world.watch(WatchStatusRequest::default()).await;
    let farewell = |answer: WatchStatusResponse| match answer.event {
        Some(Event::GoingAway(GoingAway { reason, .. })) => Some(reason),
        Some(Event::Status(_)) | None => None,
    };
    let mut said = None;
    while let Some(answer) = answers.next().await {
        said = farewell(answer.unwrap());
    }
    assert_eq!(said.as_deref(), Some("the stream is renewed"));
    assert!(begun.elapsed() >= STREAM_AGE - STREAM_AGE / 10);
    let mut answers = world.watch(WatchStatusRequest::default()).await;
    status(&mut answers).await;
    world.service.shared.shutdown.request();
    assert_eq!(farewell(answers.next().await.unwrap().unwrap()).as_deref(), Some("this replica is stopping"));
    assert!(answers.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn pauses_come_in_pages_by_name_and_one_by_one() {
    let world = world((0..250).map(|number| pause(number, 0)));
    let mut request = ListPausesRequest::default();
    let mut names = Vec::new();
    loop {
        let page = world.service.list_pauses(Request::new(request)).await.unwrap().into_inner();
        assert!(page.meta.is_some() && page.pauses.len() <= 100);
        names.extend(page.pauses.into_iter().map(|pause| pause.name));
        if page.next_page_token.is_empty() {
            break;
        }
        request = ListPausesRequest { page_token: page.next_page_token, ..Default::default() };
    }
    assert_eq!(names, (0..250).map(|number| format!("pauses/p{number:05}")).collect::<Vec<_>>());
    let get = async |name: &str| world.service.get_pause(Request::new(GetPauseRequest { name: name.to_owned() })).await;
    assert_eq!(get("pauses/p00007").await.unwrap().into_inner().pause.unwrap().reason, "restoring");
    assert_eq!(reason(&get("pauses/other").await.unwrap_err()), "PAUSE_NOT_FOUND");
    assert_eq!(reason(&get("p00007").await.unwrap_err()), "FIELD_INVALID");
}

#[tokio::test(start_paused = true)]
async fn no_answer_grows_with_the_scopes_of_pauses() {
    const MEBIBYTE: usize = 1024 * 1024;
    let world = world((0..40).map(|number| pause(number, 100)));
    let status = world.service.get_status(Request::new(GetStatusRequest {})).await.unwrap().into_inner();
    assert!(status.encoded_len() < MEBIBYTE, "{}", status.encoded_len());
    assert_eq!(status.pauses.len() + status.more_pauses as usize, 40);
    let request = ListPausesRequest { page_size: 1000, ..Default::default() };
    let page = world.service.list_pauses(Request::new(request)).await.unwrap().into_inner();
    assert!(page.encoded_len() < MEBIBYTE + 4096 && !page.next_page_token.is_empty());
    assert!(page.pauses.iter().all(|pause| pause.omitted_targets > 0));
    let request = GetPauseRequest { name: "pauses/p00007".to_owned() };
    let whole = world.service.get_pause(Request::new(request)).await.unwrap().into_inner().pause.unwrap();
    assert_eq!((whole.scope.unwrap().targets.len(), whole.omitted_targets), (100, 0));
}

/// No request has an enum yet. A request with one must refuse unknown values.
#[test]
fn no_request_has_an_enum_to_be_misread() {
    let set = prost_types::FileDescriptorSet::decode(proto::FILE_DESCRIPTOR_SET).unwrap();
    let messages: std::collections::BTreeMap<String, prost_types::DescriptorProto> = set
        .file
        .iter()
        .flat_map(|file| file.message_type.iter().map(|of| (format!(".{}.{}", file.package(), of.name()), of.clone())))
        .collect();
    let service = set.file.iter().flat_map(|file| &file.service).find(|of| of.name() == "AdminService").unwrap();
    let mut waiting: Vec<&str> = service.method.iter().map(|method| method.input_type()).collect();
    let mut looked_at = std::collections::BTreeSet::new();
    while let Some(name) = waiting.pop() {
        if !looked_at.insert(name) {
            continue;
        }
        for field in messages.get(name).into_iter().flat_map(|message| &message.field) {
            let kind = field.r#type();
            assert_ne!(
                kind,
                prost_types::field_descriptor_proto::Type::Enum,
                "{name}.{}: refuse what is unknown",
                field.name()
            );
            waiting.push(field.type_name());
        }
    }
    assert!(looked_at.contains(".ownergraph.type.v1beta1.ObjectFilter"));
}
