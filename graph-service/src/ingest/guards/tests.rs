use super::*;
use crate::ingest::scripted::{Reply, Then, ok, refuse, routed};
use engine::follow::WatchEnd;
use engine::leader::GuardAnswer;
use serde_json::value::RawValue;

const NO_GROUPS: &str = r#"{"kind":"APIGroupList","groups":[{"name":"apps"}]}"#;
const GROUPS: &str = r#"{"kind":"APIGroupList","groups":[{"name":"apps"},{"name":"apiextensions.k8s.io"}]}"#;

fn pause(name: &str) -> String {
    format!(
        r#"{{"metadata":{{"name":"{name}","uid":"u-{name}","resourceVersion":"3"}},"spec":{{"reason":"r","lifetimeSeconds":60}}}}"#
    )
}

fn pauses(names: &[&str]) -> String {
    let items: Vec<String> = names.iter().map(|name| pause(name)).collect();
    format!(r#"{{"kind":"PauseList","metadata":{{"resourceVersion":"9"}},"items":[{}]}}"#, items.join(","))
}

fn definitions(names: &[&str]) -> String {
    let items: Vec<String> = names.iter().map(|name| format!(r#"{{"metadata":{{"name":"{name}"}}}}"#)).collect();
    format!(
        r#"{{"kind":"CustomResourceDefinitionList","metadata":{{"resourceVersion":"9"}},"items":[{}]}}"#,
        items.join(",")
    )
}

/// The conclusion from these answers about pauses, their definition, and the groups.
async fn concluded(pauses: Reply, definitions: Reply, groups: Reply) -> Result<GuardAnswer, String> {
    let (clients, _) = routed(move |uri| {
        Some(match uri {
            uri if uri.contains("/pauses?") => pauses.clone(),
            uri if uri.contains("/customresourcedefinitions?fieldSelector=metadata.name%3Dpauses.ownergraph.dev") => {
                definitions.clone()
            }
            "/apis" => groups.clone(),
            other => panic!("{other} is not to be asked"),
        })
    });
    read_all(GuardKind::Pause, &clients).await
}

pub(in crate::ingest) fn gates() -> Router {
    let mut registry = prometheus_client::registry::Registry::default();
    Router::new(crate::metrics::gates::GateMetrics::register(&mut runtime::metrics::Book::new(&mut registry))).0
}

fn good(body: &str) -> Reply {
    ok(&[body], Then::End)
}

#[tokio::test(start_paused = true)]
async fn only_a_list_says_which_there_are_or_that_there_can_be_none() {
    let missing = || refuse(404, "NotFound");
    let none = || good(&definitions(&[]));
    let nothing = || refuse(500, "InternalError");
    let Ok(GuardAnswer::Served(list)) = concluded(good(&pauses(&["a", "b"])), nothing(), nothing()).await else {
        panic!("a list of pauses says which there are")
    };
    assert_eq!((list.guards.len(), list.position.to_string().as_str(), list.more), (2, "9", false));
    assert_eq!(concluded(missing(), none(), nothing()).await, Ok(GuardAnswer::NotServed));
    assert_eq!(concluded(missing(), missing(), good(NO_GROUPS)).await, Ok(GuardAnswer::NotServed));

    for (pauses, definitions, groups) in [
        // A server that has not loaded its definitions yet.
        (missing(), good(&definitions(&["pauses.ownergraph.dev"])), nothing()),
        (missing(), missing(), good(GROUPS)),
        (missing(), missing(), nothing()),
        (missing(), refuse(403, "Forbidden"), nothing()),
        (refuse(403, "Forbidden"), none(), good(NO_GROUPS)),
        (refuse(503, "ServiceUnavailable"), none(), good(NO_GROUPS)),
        (good("{}"), none(), good(NO_GROUPS)),
        (Reply::Unreachable, none(), good(NO_GROUPS)),
    ] {
        let answer = concluded(pauses, definitions, groups).await;
        assert!(answer.is_err(), "{answer:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_newer_question_takes_the_place_of_one_that_hangs() {
    let (clients, asked) = routed(|_| None);
    let (questions, waiting) = mpsc::channel(QUEUE_MAX);
    let (control, mut orders) = mpsc::channel(4);
    for number in 1..=2 {
        questions.try_send(GuardRead { kind: GuardKind::Pause, number }).unwrap();
    }
    let answering = answer(clients, waiting, control);
    let heard = async {
        let order = orders.recv().await;
        let Some(Control::Input(Input::GuardsRead { read, answer })) = order else { panic!("{order:?}") };
        assert_eq!(read, GuardRead { kind: GuardKind::Pause, number: 2 });
        assert!(answer.unwrap_err().contains("no answer within 20 s"));
        drop(questions);
    };
    let (ended, ()) = tokio::join!(answering, heard);
    ended.unwrap();
    assert_eq!(asked.lock().unwrap().len(), 1, "the first was dropped before it had asked");
}

async fn told(steps: impl AsyncFnOnce(&mut Follower)) -> Vec<Input> {
    let (control, mut orders) = mpsc::channel(16);
    let (clients, asked) = routed(|_| Some(good(&pauses(&[]))));
    let mut follower = Follower::new(GuardKind::Pause, clients, control, gates());
    steps(&mut follower).await;
    assert_eq!(*asked.lock().unwrap(), ["/apis/ownergraph.dev/v1alpha1/pauses?limit=1"], "what time it is, once");
    drop(follower);
    let mut inputs = Vec::new();
    while let Some(order) = orders.recv().await {
        let Control::Input(input) = order else { panic!("{order:?}") };
        inputs.push(input);
    }
    inputs
}

#[tokio::test]
async fn a_watch_becomes_facts() {
    let raw = |text: String| RawValue::from_string(text).unwrap();
    let (a, b) = (raw(pause("a")), raw(pause("b")));
    let leaving = raw(r#"{"metadata":{"name":"b","uid":"u-b","deletionTimestamp":"2026-01-01T12:00:00Z"}}"#.to_owned());
    let inputs = told(async |follower| {
        follower.take(Step::Told(Tell::ListBegun)).await.unwrap();
        follower.take(Step::Listed(Item::Json(&a))).await.unwrap();
        follower.take(Step::Listed(Item::Json(&leaving))).await.unwrap();
        follower.take(Step::Told(Tell::ListEnded(ResourceVersion::parse("5")))).await.unwrap();
        follower.take(Step::Seen(Item::Json(&b))).await.unwrap();
        follower.take(Step::Seen(Item::Json(&leaving))).await.unwrap();
        follower.take(Step::Deleted(Item::Json(&a))).await.unwrap();
        follower.take(Step::Told(Tell::Bookmark(ResourceVersion::parse("8")))).await.unwrap();
        let lost = Tell::WatchLost(WatchEnd::Refused, Failure::senseless("cut".to_owned()));
        follower.take(Step::Told(lost)).await.unwrap();
        follower.take(Step::Told(Tell::WatchResumed)).await.unwrap();
        assert!(matches!(follower.take(Step::Seen(Item::Json(&raw("{}".to_owned())))).await, Err(Halt::Relist(_))));
    })
    .await;
    let words: Vec<String> = inputs.iter().map(word).collect();
    assert_eq!(
        words,
        ["listed 1 at 5 false", "seen b", "gone b u-b", "gone a u-a", "followed Some(8)", "lost cut", "followed None"]
    );
}

#[tokio::test(start_paused = true)]
async fn the_time_is_asked_for_again_some_time_after_a_failure() {
    let (clients, asked) = routed(|_| Some(good(&pauses(&[]))));
    let (control, _orders) = mpsc::channel(16);
    let mut follower = Follower::new(GuardKind::Pause, clients, control, gates());
    for expected in [1, 1, 2] {
        assert_eq!(follower.now().await, None, "the answers have no date");
        assert_eq!(asked.lock().unwrap().len(), expected);
        tokio::time::advance(TIME_AGAIN * 2 / 3).await;
    }
}

fn word(input: &Input) -> String {
    if let Input::GuardsListed { list, .. } = input {
        format!("listed {} at {} {}", list.guards.len(), list.position, list.more)
    } else if let Input::GuardSeen(pause) = input {
        format!("seen {}", pause.id.name)
    } else if let Input::GuardGone { id, uid } = input {
        format!("gone {} {uid}", id.name)
    } else if let Input::GuardsFollowed { position, .. } = input {
        format!("followed {position:?}")
    } else if let Input::GuardsLost { error, .. } = input {
        format!("lost {error}")
    } else {
        format!("{input:?}")
    }
}
