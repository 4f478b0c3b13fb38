use super::*;
use crate::grpc::small_world::{config, facts, reason, secret, secrets, uid_of};
use crate::ingest::questions::{AskLast, AskStand, AskTexts};
use engine::leader::{Input, Leader, Mode};
use engine::time::Time;
use futures::FutureExt as _;
use proto::r#type::v1beta1::{GroupResource as WireCollection, ResourceVersionBounds};
use std::sync::atomic::AtomicUsize;
use tonic::Code;

/// A graph with `root` and `leaf` at position 11, and an API server that answers with `stand` and counts its calls.
struct World {
    reader: Reader,
    freshness: Freshness,
    asked: Arc<AtomicUsize>,
    stand: Arc<Mutex<Result<Stand, String>>>,
    /// The last change, as a short watch would return it.
    last: Arc<Mutex<Option<String>>>,
}

fn world() -> World {
    let mut leader = Leader::new(config(Mode::Enforce), 7);
    for input in facts(vec![secret("root", &[]), secret("leaf", &["root"]), secret("gone", &[])], "gone") {
        leader.handle(Time::ZERO, input);
    }
    while leader.poll().is_some() {}
    let reader = Reader::of(leader);
    let (asked, stand) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(Err("nobody".to_owned()))));
    let (count, answer) = (Arc::clone(&asked), Arc::clone(&stand));
    let last = Arc::new(Mutex::new(None));
    let (watched, known_last) = (Arc::clone(&asked), Arc::clone(&last));
    let ask_last: AskLast = Box::new(move |span| {
        assert!(span.from.is_before(&span.to));
        watched.fetch_add(1, Ordering::Relaxed);
        let last = known_last.lock().unwrap().clone();
        async move {
            tokio::time::sleep(Duration::from_secs(1)).await;
            last.map(|last: String| ResourceVersion::parse(&last)).ok_or_else(|| "no bookmark".to_owned())
        }
        .boxed()
    });
    let ask: AskStand = Box::new(move |_, version| {
        assert_eq!(&*version, "v1");
        count.fetch_add(1, Ordering::Relaxed);
        let answer = answer.lock().unwrap().clone();
        async move {
            tokio::time::sleep(Duration::from_millis(20)).await;
            answer
        }
        .boxed()
    });
    let texts: AskTexts = Box::new(|_| async { Ok(None) }.boxed());
    let questions = Questions { stand: ask, last: ask_last, texts };
    World { freshness: Freshness::new(reader.clone(), "cluster".to_owned(), questions), reader, asked, stand, last }
}

impl World {
    fn says(&self, position: &str, objects: Option<&[(&str, &str)]>) {
        let seen = |&(name, version): &(&str, &str)| (uid_of(name), ResourceVersion::parse(version));
        let objects = objects.map(|objects| objects.iter().map(seen).collect());
        *self.stand.lock().unwrap() = Ok(Stand { position: ResourceVersion::parse(position), objects });
    }

    fn moves_to(&self, position: &str) {
        let resource_version = ResourceVersion::parse(position);
        let input = Input::Bookmark { collection: secrets(), resource_version };
        self.reader.alter(|leader| leader.handle(Time::ZERO, input));
    }

    async fn wait(&self, requirement: Requirement) -> Result<(), Status> {
        let wanted = Consistency { requirement: Some(requirement), max_wait: None };
        self.freshness.wait(Some(wanted), &About::Everything).await
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }
}

fn at_least(resource: &str, version: &str) -> Requirement {
    let bound = ResourceVersionBound {
        group_resource: Some(WireCollection { group: String::new(), resource: resource.to_owned() }),
        resource_version: version.to_owned(),
    };
    Requirement::AtLeast(ResourceVersionBounds { bounds: vec![bound] })
}

fn told(refused: &Status) -> (Code, String) {
    (refused.code(), reason(refused))
}

#[tokio::test(start_paused = true)]
async fn what_is_reached_already_takes_no_time_and_no_question() {
    let world = world();
    let begun = Instant::now();
    world.wait(Requirement::MinimizeLatency(true)).await.unwrap();
    world.wait(at_least("secrets", "11")).await.unwrap();
    let token = world.freshness.now().token(&About::Everything);
    assert!(token.value.len() < 64, "{}", token.value.len());
    world.wait(Requirement::AtLeastAsFresh(token)).await.unwrap();
    assert_eq!((begun.elapsed(), world.asked()), (Duration::ZERO, 0));
}

#[tokio::test(start_paused = true)]
async fn a_bound_is_reached_when_the_watch_comes_there() {
    let world = world();
    let waiting = world.wait(at_least("secrets", "20"));
    let moving = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        world.moves_to("19");
        tokio::time::sleep(Duration::from_millis(30)).await;
        world.moves_to("20");
        Instant::now()
    };
    let (reached, moved) = tokio::join!(waiting, moving);
    reached.unwrap();
    assert!(moved.elapsed() <= LOOK_EVERY + Duration::from_millis(1));
    assert_eq!(world.asked(), 0, "the watch was in time");
}

#[tokio::test(start_paused = true)]
async fn a_quiet_collection_is_as_fresh_as_a_list_that_shows_the_same() {
    let world = world();
    world.says("500", Some(&[("root", "5"), ("leaf", "5")]));
    let begun = Instant::now();
    world.wait(Requirement::Latest(true)).await.unwrap();
    assert_eq!((begun.elapsed(), world.asked()), (Duration::from_millis(20), 1));
    world.wait(at_least("secrets", "400")).await.unwrap();
    assert_eq!(world.asked(), 2);
    for other in [&[("root", "5")][..], &[("root", "5"), ("leaf", "6")], &[("root", "5"), ("leaf", "5"), ("new", "9")]]
    {
        world.says("500", Some(other));
        let refused = world.wait(Requirement::Latest(true)).await.unwrap_err();
        assert_eq!(told(&refused), (Code::Unavailable, "REPLICA_BEHIND".to_owned()));
        assert!(refused.message().contains("secrets has not reached 500, it is at 11"), "{refused:?}");
    }
    world.says("500", None);
    let begun = Instant::now();
    assert_eq!(reason(&world.wait(Requirement::Latest(true)).await.unwrap_err()), "REPLICA_BEHIND");
    assert_eq!(begun.elapsed(), WAIT_DEFAULT, "bounded");
}

#[tokio::test(start_paused = true)]
async fn a_large_quiet_collection_is_watched_for_a_moment() {
    let world = world();
    world.says("500", None);
    *world.last.lock().unwrap() = Some("11".to_owned());
    let begun = Instant::now();
    let all = join_all((0..50).map(|_| world.wait(Requirement::Latest(true)))).await;
    assert!(all.iter().all(Result::is_ok), "{all:?}");
    assert!(begun.elapsed() < WAIT_DEFAULT, "{:?}", begun.elapsed());
    assert!(world.asked() <= 3, "{}", world.asked());
    // The known answer needs no other watch, only a list for the current position.
    world.wait(at_least("secrets", "499")).await.unwrap();
    assert!(world.asked() <= 4, "{}", world.asked());
    // A change that the graph has not seen.
    world.says("600", None);
    *world.last.lock().unwrap() = Some("590".to_owned());
    let waiting = world.wait(Requirement::Latest(true));
    let moving = async {
        tokio::time::sleep(Duration::from_millis(1500)).await;
        world.moves_to("590");
    };
    let (reached, ()) = tokio::join!(waiting, moving);
    reached.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_readers_is_two_questions() {
    let world = world();
    world.says("500", Some(&[("root", "5"), ("leaf", "5")]));
    let first = async {
        let all = join_all((0..500).map(|_| world.wait(Requirement::Latest(true))));
        assert!(all.await.iter().all(Result::is_ok));
    };
    let later = async {
        tokio::time::sleep(Duration::from_millis(5)).await;
        world.wait(Requirement::Latest(true)).await.unwrap();
    };
    tokio::join!(first, later);
    assert!((2..=3).contains(&world.asked()), "{}", world.asked());
}

#[tokio::test(start_paused = true)]
async fn tokens_hold_in_their_own_cluster_and_history_only() {
    let world = world();
    let token = || world.freshness.now().token(&About::Everything);
    let Some(Token { cluster_uid, .. }) = Token::read(&token().value) else { panic!("its own token") };
    assert_eq!(cluster_uid, "cluster");
    let of = |token: Token| Requirement::AtLeastAsFresh(ConsistencyToken { value: token.write() });
    let read = || Token::read(&token().value).unwrap();
    let elsewhere = of(Token { cluster_uid: "other".to_owned(), ..read() });
    let refused = world.wait(elsewhere).await.unwrap_err();
    assert_eq!(told(&refused), (Code::InvalidArgument, "TOKEN_FROM_OTHER_CLUSTER".to_owned()));
    for nonsense in [&b""[..], b"x", &[1, 0xff, 0xff], &[2]] {
        let token = Requirement::AtLeastAsFresh(ConsistencyToken { value: nonsense.to_vec() });
        assert_eq!(told(&world.wait(token).await.unwrap_err()), (Code::InvalidArgument, "TOKEN_MALFORMED".to_owned()));
    }
    // Another replica was ahead, and the store was replaced.
    let mut ahead = Token { process: 1, positions: Vec::new(), collections: Vec::new(), ..read() };
    ahead.put(&secrets(), &ResourceVersion::parse("90"));
    world.says("50", None);
    assert_eq!(reason(&world.wait(of(ahead.clone())).await.unwrap_err()), "TOKEN_FROM_OTHER_HISTORY");
    world.says("95", None);
    assert_eq!(reason(&world.wait(of(ahead)).await.unwrap_err()), "REPLICA_BEHIND");
    // This replica saw the restore.
    let before = token();
    world.moves_to("3");
    let refused = world.wait(Requirement::AtLeastAsFresh(before)).await.unwrap_err();
    assert_eq!(told(&refused), (Code::FailedPrecondition, "TOKEN_FROM_OTHER_HISTORY".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn what_can_never_be_reached_is_refused_with_its_reason() {
    let world = world();
    for (requirement, code, why) in [
        (at_least("unknowns", "5"), Code::InvalidArgument, "FIELD_INVALID"),
        (at_least("secrets", "x"), Code::InvalidArgument, "FIELD_INVALID"),
        (Requirement::Latest(false), Code::InvalidArgument, "FIELD_INVALID"),
        (Requirement::MinimizeLatency(false), Code::InvalidArgument, "FIELD_INVALID"),
        (Requirement::Latest(true), Code::Unavailable, "API_SERVER_REFUSES"),
    ] {
        assert_eq!(told(&world.wait(requirement).await.unwrap_err()), (code, why.to_owned()));
    }
    world.says("5", None);
    assert_eq!(reason(&world.wait(Requirement::Latest(true)).await.unwrap_err()), "TOKEN_FROM_OTHER_HISTORY");
    *world.stand.lock().unwrap() = Err("nobody".to_owned());
    let opaque = Input::Bookmark { collection: secrets(), resource_version: ResourceVersion::parse("abc") };
    world.reader.alter(|leader| leader.handle(Time::ZERO, opaque));
    let refused = world.wait(at_least("secrets", "12")).await.unwrap_err();
    assert_eq!(told(&refused), (Code::FailedPrecondition, "RESOURCE_VERSION_NOT_COMPARABLE".to_owned()));
    let failed = Input::ListFailed { collection: secrets(), error: "broken".to_owned(), broke: false };
    world.reader.alter(|leader| leader.handle(Time::ZERO, failed));
    let begun = Instant::now();
    assert_eq!(reason(&world.wait(at_least("secrets", "99")).await.unwrap_err()), "COLLECTION_UNSYNCED");
    assert_eq!(begun.elapsed(), Duration::ZERO, "at once");
    world.wait(Requirement::Latest(true)).await.expect("what cannot be listed is left out, and named in meta.unsynced");
}
