//! Streams over a graph that the test changes. The state of a reader is compared with a walk.

use super::*;
use crate::decisions::DecisionLog;
use crate::driver;
use crate::grpc::LONG_READS_MAX;
use crate::grpc::followers::{Followers, UNREAD_FOR};
use crate::grpc::small_world::{config, facts, reason, secret, secrets, shared, uid_of};
use crate::messages::Leadership;
use engine::jitter::Rng;
use engine::leader::{DependentsOptions, DependentsWalk, Input, Leader, Mode};
use engine::object::{Facts, Object, ResourceVersion};
use engine::time::Time;
use futures::StreamExt as _;
use futures::stream::BoxStream;
use proto::graph::v1beta1::graph_service_server::GraphService as _;
use proto::r#type::v1beta1::ObjectFilter;
use runtime::tasks::Tasks;
use std::collections::BTreeMap;
use tonic::{Code, Request};

struct World {
    graph: Graph,
    reader: driver::Reader,
    version: u64,
    _tasks: Tasks,
}

/// Objects with their owners, on a leader in observe mode.
fn world(objects: &[(&str, &[&str])]) -> World {
    let mut leader = Leader::new(config(Mode::Observe), 7);
    let objects = objects.iter().map(|(name, owners)| secret(name, owners)).chain([secret("gone", &[])]);
    for input in facts(objects.collect(), "gone") {
        leader.handle(Time::ZERO, input);
    }
    while leader.poll().is_some() {}
    let (_leadership, known) = tokio::sync::watch::channel(Leadership::default());
    let shared = shared(leader, DecisionLog::in_memory(), known);
    let mut tasks = Tasks::new();
    let (writers, followers) = Followers::new();
    tasks.spawn_until_end("stream writers", writers.run());
    World { reader: shared.reader.clone(), graph: Graph::new(shared, followers), version: 20, _tasks: tasks }
}

impl World {
    fn at(&mut self, object: Object) -> Object {
        self.version += 1;
        Object { resource_version: ResourceVersion::parse(&self.version.to_string()), ..object }
    }

    fn put(&mut self, name: &str, owners: &[&str]) {
        let object = self.at(secret(name, owners));
        self.reader.alter(|leader| leader.handle(Time::ZERO, Input::Seen { collection: secrets(), object }));
    }

    fn terminate(&mut self, name: &str, owners: &[&str]) {
        let mut object = self.at(secret(name, owners));
        let finalizers = [engine::object::FOREGROUND_FINALIZER.into()].into();
        object.facts = Facts { terminating: true, finalizers, ..object.facts };
        self.reader.alter(|leader| leader.handle(Time::ZERO, Input::Seen { collection: secrets(), object }));
    }

    fn delete(&mut self, name: &str) {
        let object = self.at(secret(name, &[]));
        self.reader.alter(|leader| leader.handle(Time::ZERO, Input::Deleted { collection: secrets(), object }));
    }

    async fn open(&self, request: WatchDependentsRequest) -> Result<Follower, Status> {
        let stream = self.graph.watch_dependents(Request::new(request)).await?.into_inner();
        Ok(Follower {
            stream,
            seen: BTreeMap::new(),
            kinds: Vec::new(),
            token: Vec::new(),
            resets: Vec::new(),
            is_whole: false,
        })
    }

    async fn below(&self, name: &str, max_depth: u32) -> Follower {
        self.open(below(name, max_depth)).await.unwrap()
    }

    /// The expected members, by a walk.
    fn walked(&self, name: &str, max_depth: u32) -> BTreeMap<String, u32> {
        let options = DependentsOptions { max_depth, blocking_only: false, max_objects: 1000 };
        let mut walk = DependentsWalk::new(uid_of(name), options);
        let steps = std::iter::from_fn(|| self.reader.with(|leader| walk.step(leader, 100, 100)));
        steps.flatten().map(|found| (found.node.object.name.to_string(), found.depth)).collect()
    }
}

fn below(name: &str, max_depth: u32) -> WatchDependentsRequest {
    let object = ObjectRef { uid: format!("uid-{name}"), ..ObjectRef::default() };
    WatchDependentsRequest { r#ref: Some(object), max_depth, ..Default::default() }
}

/// A reader that keeps the state it was sent.
struct Follower {
    stream: BoxStream<'static, Result<WatchDependentsResponse, Status>>,
    seen: BTreeMap<String, u32>,
    /// The changes of the last batch.
    kinds: Vec<(ChangeType, String)>,
    token: Vec<u8>,
    resets: Vec<String>,
    is_whole: bool,
}

impl Follower {
    async fn next(&mut self) -> Option<Result<Event, Status>> {
        let message = match self.stream.next().await? {
            Ok(message) => message,
            Err(status) => return Some(Err(status)),
        };
        let more = matches!(&message.event, Some(Event::Batch(batch)) if batch.more);
        assert!(!more || message.resume_token.is_empty(), "no client can resume in the middle");
        if !message.resume_token.is_empty() {
            self.token = message.resume_token;
        }
        let event = message.event.unwrap();
        match &event {
            Event::Batch(batch) => self.take(batch),
            Event::Bookmark(bookmark) => self.is_whole |= bookmark.snapshot_complete,
            Event::Reset(reset) => {
                self.seen.clear();
                self.is_whole = false;
                self.resets.push(reset.reason.clone());
            }
            Event::GoingAway(_) => {}
        }
        Some(Ok(event))
    }

    fn take(&mut self, batch: &Batch) {
        self.kinds.clear();
        for change in &batch.changes {
            let name = |node: &Node| node.r#ref.as_ref().map(|object| object.uid.trim_start_matches("uid-").to_owned());
            let name = change.node.as_ref().and_then(name).unwrap();
            match change.r#type() {
                ChangeType::Present | ChangeType::Added => {
                    self.seen.insert(name.clone(), change.depth);
                }
                ChangeType::Changed => {
                    assert!(self.seen.insert(name.clone(), change.depth).is_some(), "{name} was not there");
                }
                ChangeType::Removed => assert!(self.seen.remove(&name).is_some(), "{name} was not there"),
                ChangeType::Unspecified => panic!("never sent"),
            }
            self.kinds.push((change.r#type(), name));
        }
    }

    async fn whole(&mut self) {
        while !self.is_whole {
            self.next().await.unwrap().unwrap();
        }
    }

    /// Reads until a bookmark says that nothing is new.
    async fn settled(&mut self) {
        while !matches!(self.next().await.unwrap().unwrap(), Event::Bookmark(_)) {}
    }
}

#[tokio::test(start_paused = true)]
async fn first_comes_what_is_there_then_the_word_that_it_was_all_then_changes() {
    let mut world = world(&[("root", &[]), ("a", &["root"]), ("b", &["a"]), ("other", &[])]);
    let mut follower = world.below("root", 9).await;
    follower.whole().await;
    assert_eq!(follower.seen, BTreeMap::from([("a".to_owned(), 1), ("b".to_owned(), 2)]));
    for (change, expected) in [
        ((|world: &mut World| world.put("c", &["b"])) as fn(&mut World), vec![(ChangeType::Added, "c")]),
        (|world| world.put("other", &["nobody"]), vec![]),
        (|world| world.terminate("a", &["root"]), vec![(ChangeType::Changed, "a")]),
        (|world| world.put("b", &["root"]), vec![(ChangeType::Changed, "b")]),
        (|world| world.put("b", &[]), vec![(ChangeType::Removed, "b"), (ChangeType::Removed, "c")]),
    ] {
        change(&mut world);
        follower.kinds.clear();
        follower.settled().await;
        let shown: Vec<_> = follower.kinds.iter().map(|(kind, name)| (*kind, name.as_str())).collect();
        // The number of dependents of an owner, and a reference with a changed owner, count as changes.
        for expected in &expected {
            assert!(shown.contains(expected), "{expected:?} in {shown:?}");
        }
        assert_eq!(expected.is_empty(), shown.is_empty(), "{shown:?}");
        assert_eq!(follower.seen, world.walked("root", 9));
    }
    world.delete("a");
    follower.settled().await;
    assert!(follower.seen.is_empty());
    assert_eq!(follower.resets, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn who_comes_back_before_its_old_stream_is_known_to_be_dead_goes_on_from_it() {
    let mut world = world(&[("root", &[]), ("a", &["root"])]);
    for (takes_all, name) in [(true, "b"), (false, "c")] {
        // The connection is gone and the service does not know: the stream is neither read nor dropped.
        let mut old = world.below("root", 9).await;
        old.whole().await;
        world.put(name, &["a"]);
        if takes_all {
            old.settled().await;
        } else {
            for _ in 0..3 {
                tokio::time::advance(Duration::from_secs(10)).await;
            }
        }
        let again = WatchDependentsRequest { resume_token: old.token.clone(), ..below("root", 9) };
        let mut new = world.open(again).await.unwrap();
        new.seen = old.seen.clone();
        world.delete(name);
        new.settled().await;
        assert_eq!((new.resets, new.seen), (Vec::new(), BTreeMap::from([("a".to_owned(), 1)])));
        while let Some(message) = old.stream.next().await {
            assert!(message.is_ok(), "it ends well");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn objects_that_own_each_other_do_not_keep_each_other_in() {
    let mut world = world(&[("root", &[]), ("x", &["root"]), ("a", &["root", "c"]), ("b", &["a"]), ("c", &["b"])]);
    let mut follower = world.below("root", 64).await;
    follower.whole().await;
    assert_eq!(follower.seen.len(), 4);
    world.put("a", &["c"]);
    follower.settled().await;
    assert_eq!(follower.seen.keys().collect::<Vec<_>>(), ["x"]);
    world.put("b", &["a", "x"]);
    follower.settled().await;
    assert_eq!(follower.seen, world.walked("root", 64));
    assert_eq!(follower.seen["a"], 4);
}

#[tokio::test(start_paused = true)]
async fn whatever_happens_a_follower_knows_what_a_walk_finds() {
    const NAMES: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];
    for seed in 1..40_u64 {
        let mut random = Rng::new(seed);
        let mut draw = move |below: usize| usize::try_from(random.next() >> 33).unwrap() % below;
        let mut world = world(&[("root", &[])]);
        let depth = [1, 2, 64][draw(3)];
        let (mut follower, mut all) =
            (world.below("root", depth).await, world.open(WatchDependentsRequest::default()).await.unwrap());
        follower.whole().await;
        all.whole().await;
        let mut stored = (follower.token.clone(), follower.seen.clone());
        for step in 0..40 {
            let name = NAMES[draw(NAMES.len())];
            let owners: Vec<&str> =
                (0..draw(4)).map(|_| [&NAMES[..], &["root"]].concat()[draw(NAMES.len() + 1)]).collect();
            world.put(name, &owners);
            if draw(3) == 0 {
                follower.settled().await;
                assert_eq!(follower.seen, world.walked("root", depth), "seed {seed} step {step}");
                all.settled().await;
                if draw(2) == 0 {
                    stored = (follower.token.clone(), follower.seen.clone());
                }
            }
            if draw(8) == 0 {
                // A reader may have stored less than it was sent.
                let (token, seen) = match draw(2) {
                    0 => stored.clone(),
                    _ => (follower.token.clone(), std::mem::take(&mut follower.seen)),
                };
                drop(std::mem::replace(&mut follower.stream, futures::stream::empty().boxed()));
                sleep(Duration::from_millis(200)).await;
                let request = WatchDependentsRequest { resume_token: token.clone(), ..below("root", depth) };
                all.settled().await;
                follower = world.open(request).await.unwrap();
                // The reader may disconnect again before it reads.
                (follower.seen, follower.token, follower.is_whole) = (seen, token, true);
            }
        }
        follower.settled().await;
        assert_eq!((follower.seen.clone(), follower.resets.len()), (world.walked("root", depth), 0), "seed {seed}");
        all.settled().await;
        let observed = world
            .reader
            .with(|leader| leader.uids_from(0, 1000).0.iter().filter(|uid| leader.linked(uid).is_some()).count());
        assert_eq!(all.seen.len(), observed, "seed {seed}");
    }
}

#[tokio::test(start_paused = true)]
async fn filters_show_what_they_admit_and_follow_the_rest() {
    let mut world = world(&[("root", &[]), ("a", &["root"]), ("b", &["a"])]);
    let include =
        vec![ObjectFilter { cel: "object.name != 'a' && object.state == 'LIVE'".to_owned(), ..Default::default() }];
    let mut follower = world.open(WatchDependentsRequest { include, ..below("root", 9) }).await.unwrap();
    follower.whole().await;
    assert_eq!(follower.seen.keys().collect::<Vec<_>>(), ["b"]);
    world.terminate("b", &["a"]);
    follower.settled().await;
    assert_eq!(follower.kinds, [(ChangeType::Removed, "b".to_owned())]);
    world.put("c", &["a"]);
    follower.settled().await;
    assert_eq!(follower.kinds, [(ChangeType::Added, "c".to_owned())]);
}

#[tokio::test(start_paused = true)]
async fn a_stream_goes_on_where_another_ended_or_begins_anew_and_says_so() {
    let mut world = world(&[("root", &[]), ("a", &["root"]), ("b", &["a"])]);
    let mut first = world.below("root", 9).await;
    first.whole().await;
    let (token, seen) = (first.token.clone(), first.seen.clone());
    world.put("c", &["a"]);
    first.settled().await;
    world.put("b", &[]);
    first.settled().await;
    drop(first);
    sleep(Duration::from_millis(200)).await;
    world.put("d", &["c"]);
    let again = |token: Vec<u8>| WatchDependentsRequest { resume_token: token, ..below("root", 9) };
    let mut second = world.open(again(token.clone())).await.unwrap();
    (second.seen, second.is_whole) = (seen.clone(), true);
    second.settled().await;
    assert_eq!((second.seen.clone(), second.resets.len()), (world.walked("root", 9), 0));
    // The stream is still open, for a client that may have lost its connection.
    let mut third = world.open(again(token.clone())).await.unwrap();
    (third.seen, third.is_whole) = (seen, true);
    third.settled().await;
    assert_eq!((third.seen.clone(), third.resets.len()), (world.walked("root", 9), 0));
    assert!(second.next().await.is_none());
    drop(third);
    sleep(Duration::from_secs(301)).await;
    let mut late = world.open(again(token.clone())).await.unwrap();
    late.whole().await;
    assert_eq!(late.resets, [UNKNOWN]);
    let mut other = world.open(WatchDependentsRequest { resume_token: token, ..below("root", 3) }).await.unwrap();
    other.whole().await;
    assert_eq!(other.resets, [UNKNOWN], "of another request");
    let refused = world.open(again(vec![7])).await.err().unwrap();
    assert_eq!((refused.code(), reason(&refused).as_str()), (Code::InvalidArgument, "TOKEN_MALFORMED"));
    let refused = world.open(below("nobody", 3)).await.err().unwrap();
    assert_eq!((refused.code(), reason(&refused).as_str()), (Code::NotFound, "OBJECT_NOT_FOUND"));
}

#[tokio::test(start_paused = true)]
async fn who_is_too_far_behind_begins_anew_and_who_does_not_read_is_sent_away() {
    let mut world = world(&[("root", &[]), ("a", &["root"])]);
    let mut follower = world.below("root", 9).await;
    follower.whole().await;
    world.reader.alter(|leader| {
        for number in 0..150_000_u64 {
            let version = ResourceVersion::parse(&(1000 + number).to_string());
            let object = Object { resource_version: version, ..secret("a", &["root"]) };
            leader.handle(Time::ZERO, Input::Seen { collection: secrets(), object });
        }
    });
    world.version = 200_000;
    world.put("b", &["root"]);
    follower.settled().await;
    follower.whole().await;
    assert_eq!(follower.resets, [BEHIND]);
    assert_eq!(follower.seen, world.walked("root", 9));

    let mut lazy = world.below("root", 9).await;
    lazy.whole().await;
    for round in 0..8 {
        world.put(&format!("more-{round}"), &["root"]);
        sleep(UNREAD_FOR / 3).await;
    }
    let ended = loop {
        match lazy.next().await {
            Some(Ok(_)) => {}
            other => break other,
        }
    };
    let refused = ended.unwrap().unwrap_err();
    assert_eq!((refused.code(), reason(&refused).as_str()), (Code::ResourceExhausted, "SLOW_CONSUMER"));
    let mut again =
        world.open(WatchDependentsRequest { resume_token: lazy.token.clone(), ..below("root", 9) }).await.unwrap();
    again.seen = lazy.seen;
    again.settled().await;
    assert_eq!((again.seen, again.resets.len()), (world.walked("root", 9), 0));
}

#[tokio::test(start_paused = true)]
async fn a_store_that_went_back_is_followed_from_its_beginning() {
    let world = world(&[("root", &[]), ("a", &["root"])]);
    let mut follower = world.below("root", 9).await;
    follower.whole().await;
    let back = Input::Bookmark { collection: secrets(), resource_version: ResourceVersion::parse("2") };
    world.reader.alter(|leader| leader.handle(Time::ZERO, back));
    follower.settled().await;
    assert_eq!(follower.resets, [REWOUND]);
    world.graph.shared.shutdown.request();
    while let Some(event) = follower.next().await {
        if matches!(event.unwrap(), Event::GoingAway(_)) {
            return;
        }
    }
    panic!("no farewell");
}

#[tokio::test(start_paused = true)]
async fn large_sets_come_in_messages_of_a_bounded_size() {
    let children: Vec<String> = (0..3000).map(|number| format!("child-{number:05}")).collect();
    let mut objects: Vec<(&str, &[&str])> = vec![("root", &[])];
    objects.extend(children.iter().map(|name| (name.as_str(), &["root"][..])));
    let world = world(&objects);
    let mut follower = world.below("root", 1).await;
    let mut batches = 0;
    while !follower.is_whole {
        if let Event::Batch(batch) = follower.next().await.unwrap().unwrap() {
            assert!(batch.changes.len() <= CHANGES_MAX && batch.encoded_len() < 2 * BYTES_MAX);
            batches += 1;
        }
    }
    assert_eq!((follower.seen.len(), batches >= 6), (3000, true));
}

#[tokio::test(start_paused = true)]
async fn snapshots_that_their_readers_leave_unread_hold_up_no_other_call() {
    let world = world(&[("root", &[]), ("a", &["root"])]);
    let mut unread = Vec::new();
    for _ in 0..LONG_READS_MAX {
        unread.push(world.below("root", 1).await);
    }
    sleep(Duration::from_secs(1)).await;
    let r#ref = Some(ObjectRef { uid: "uid-a".to_owned(), ..Default::default() });
    let owners =
        world.graph.list_owners(Request::new(proto::graph::v1beta1::ListOwnersRequest { r#ref, ..Default::default() }));
    tokio::time::timeout(Duration::from_secs(1), owners).await.expect("a turn is free").unwrap();
}
