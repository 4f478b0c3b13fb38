use super::*;
use crate::ingest::collection::Collection;
use crate::ingest::scripted::{self, Asked, Reply, Then, bookmark, event, object, ok, page, refuse, word};
use engine::follow::{SILENCE_MAX, WATCH_FOR_UNMARKED_S, WatchEnd};
use engine::leader::Input;
use engine::object::{Access, Backend, GroupResource, ServedKind};
use kube_api::media;
use kube_api::metadata::Encoding;
use tokio::sync::{Notify, mpsc};
use tokio::time::timeout;

/// A follower of `script`, its inputs, and its requests.
fn follower(encoding: Encoding, script: Vec<Reply>) -> (impl Future<Output = ()>, mpsc::Receiver<Input>, Asked) {
    let (clients, asked) = scripted::server_in(encoding, script);
    let (inputs, received) = mpsc::channel(64);
    let served = ServedKind {
        group_resource: GroupResource { group: Arc::from(""), resource: Arc::from("things") },
        kind: Arc::from("Thing"),
        version: Arc::from("v1"),
        other_versions: Vec::new(),
        split: false,
        namespaced: true,
        deletable: true,
        names: Vec::new(),
        access: Access::Watched,
        backend: Backend::Main,
    };
    let source = Source {
        clients,
        name: "things".to_owned(),
        path: "/api/v1/things".to_owned(),
        accept_list: media::METADATA_LIST_PROTOBUF,
        accept_watch: media::METADATA_PROTOBUF,
        page_size: 2,
        turns: Arc::new(Semaphore::new(1)),
        paged: Arc::new(AtomicBool::new(false)),
        seed: 7,
    };
    let selectors = tokio::sync::watch::channel(Arc::default()).1;
    let (unserved, leaving) = (Arc::new(Notify::new()), Arc::new(AtomicBool::new(false)));
    let mut sink = Collection::new(&served, inputs, unserved, leaving, selectors);
    (async move { follow(source, &mut sink).await }, received, asked)
}

/// Plays `script` until nothing happens for a minute. Returns inputs and requests. After the script the server is
/// silent, which shows as a lost watch.
async fn play_in(encoding: Encoding, script: Vec<Reply>) -> (Vec<String>, Vec<String>) {
    let (following, mut received, asked) = follower(encoding, script);
    let mut words = Vec::new();
    let listening = async {
        while let Ok(Some(input)) = timeout(Duration::from_secs(60), received.recv()).await {
            words.push(word(&input));
        }
    };
    tokio::select! { () = following => {}, () = listening => {} }
    let asked = asked.lock().unwrap().clone();
    (words, asked)
}

/// The encoding of the server makes no difference.
async fn play(script: Vec<Reply>) -> (Vec<String>, Vec<String>) {
    let json = play_in(Encoding::Json, script.clone()).await;
    assert_eq!(json, play_in(Encoding::Protobuf, script).await);
    json
}

/// A watch-list of one object that ends at version 10, then these lines.
fn listed(more: &[String], then: Then) -> Reply {
    let mut lines = vec![event("ADDED", &object("a", 5)), bookmark(10, true)];
    lines.extend_from_slice(more);
    Reply::Answer { status: 200, retry_after: None, lines, then }
}

const LISTED: [&str; 3] = ["begun", "listed a 5", "ended 10"];

/// The inputs after the first list.
async fn after_list(script: Vec<Reply>) -> (Vec<String>, Vec<String>) {
    let (words, asked) = play(script).await;
    assert_eq!(words[..3], LISTED);
    (words[3..].to_vec(), asked)
}

#[tokio::test(start_paused = true)]
async fn a_watch_list_goes_on_as_a_watch() {
    let more = [
        event("ADDED", &object("b", 11)),
        event("MODIFIED", &object("b", 12)),
        event("DELETED", &object("a", 13)),
        bookmark(20, false),
    ];
    let (words, asked) = after_list(vec![listed(&more, Then::Hang)]).await;
    assert_eq!(words, ["seen b 11", "seen b 12", "deleted a 13", "bookmark 20"]);
    assert!(asked[0].contains("watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"), "{asked:?}");
    assert!(asked[0].contains("allowWatchBookmarks=true") && !asked[0].contains("resourceVersion="), "{asked:?}");
}

#[tokio::test(start_paused = true)]
async fn pages_where_the_watch_list_is_refused_and_it_is_not_tried_again() {
    for status in [400, 422] {
        let (words, asked) = play(vec![
            refuse(status, "Invalid"),
            ok(&[&page(10, "next/1+", &[object("a", 5), object("b", 6)])], Then::End),
            ok(&[&page(10, "", &[object("c", 7)])], Then::End),
            ok(&[&event("ERROR", r#"{"kind":"Status","code":410,"reason":"Expired"}"#)], Then::End),
            ok(&[&page(20, "", &[])], Then::End),
        ])
        .await;
        assert_eq!(words[..5], ["begun", "listed a 5", "listed b 6", "listed c 7", "ended 10"]);
        assert!(words[5].starts_with("lost Expired: "), "{words:?}");
        assert_eq!(words[6..8], ["begun", "ended 20"]);
        assert_eq!(asked[1], "/api/v1/things?limit=2");
        assert_eq!(asked[2], "/api/v1/things?limit=2&continue=next%2F1%2B");
        assert!(asked[3].contains("watch=true&allowWatchBookmarks=true&resourceVersion=10&"), "{asked:?}");
        assert_eq!(asked[4], "/api/v1/things?limit=2");
    }
}

#[tokio::test(start_paused = true)]
async fn pages_where_the_server_does_not_know_of_watch_lists() {
    let ignorant = [
        ok(&[&event("ADDED", &object("a", 5))], Then::Hang),
        ok(&[&event("ADDED", &object("a", 5)), &bookmark(9, false)], Then::Hang),
    ];
    for first in ignorant {
        let (words, asked) = play(vec![first, ok(&[&page(10, "", &[object("a", 5)])], Then::End)]).await;
        assert_eq!(words[..5], ["begun", "listed a 5", "begun", "listed a 5", "ended 10"]);
        assert_eq!(asked[1], "/api/v1/things?limit=2");
    }
}

#[tokio::test(start_paused = true)]
async fn an_expired_token_leads_to_one_list_without_pages() {
    let (words, asked) = play(vec![
        refuse(422, "Invalid"),
        ok(&[&page(10, "t", &[object("a", 5)])], Then::End),
        refuse(410, "Expired"),
        ok(&[&page(12, "", &[object("b", 6)])], Then::End),
    ])
    .await;
    assert_eq!(words[..5], ["begun", "listed a 5", "begun", "listed b 6", "ended 12"]);
    assert_eq!(asked[3], "/api/v1/things");
}

#[tokio::test(start_paused = true)]
async fn a_page_that_fails_is_asked_for_again_and_what_came_before_it_is_kept() {
    let first = [refuse(422, "Invalid"), ok(&[&page(10, "t", &[object("a", 5)])], Then::End)];
    let failures = [refuse(500, "InternalError"), Reply::Unreachable, refuse(429, "TooManyRequests")];
    let last = [ok(&[&page(10, "", &[object("b", 6)])], Then::End)];
    let (words, asked) = play([&first[..], &failures, &last].concat()).await;
    assert_eq!(words[..4], ["begun", "listed a 5", "listed b 6", "ended 10"]);
    assert!(asked[2..6].iter().all(|uri| uri == "/api/v1/things?limit=2&continue=t"), "{asked:?}");
    let hopeless = [refuse(403, "Forbidden"), ok(&[&page(10, "", &[])], Then::End)];
    let (words, asked) = play([&first[..], &hopeless].concat()).await;
    assert!(words[2].starts_with("failed: "), "{words:?}");
    assert_eq!(asked[3], "/api/v1/things?limit=2", "from the beginning");
}

#[tokio::test(start_paused = true)]
async fn a_list_that_the_server_cuts_short_is_given_more_time() {
    let cut = || ok(&[&event("ADDED", &object("a", 5))], Then::End);
    let (words, asked) = play(vec![cut(), cut(), cut(), listed(&[], Then::Hang)]).await;
    assert!(words.contains(&"ended 10".to_owned()), "{words:?}");
    let seconds = |uri: &String| -> u64 { uri.rsplit('=').next().unwrap().parse().unwrap() };
    for (number, uri) in asked[..4].iter().enumerate() {
        let most = (2 * WATCH_FOR_UNMARKED_S) << number;
        assert!((most / 2..most).contains(&seconds(uri)), "{asked:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_the_server_ends_before_its_time_is_told_of_and_goes_on() {
    let first = listed(&[event("ADDED", &object("b", 11))], Then::End);
    let second = ok(&[&event("ADDED", &object("c", 12)), &bookmark(15, false)], Then::End);
    let third = ok(&[&event("ADDED", &object("d", 16))], Then::Hang);
    let (words, asked) = after_list(vec![first, second, third]).await;
    let early = "lost Early: watch things: the API server ended it early";
    assert_eq!(words[..8], ["seen b 11", early, "resumed", "seen c 12", "bookmark 15", early, "resumed", "seen d 16"]);
    assert!(asked[1].contains("resourceVersion=11&") && asked[2].contains("resourceVersion=15&"), "{asked:?}");
}

#[tokio::test(start_paused = true)]
async fn a_lost_connection_is_told_and_resumed() {
    let (words, asked) = after_list(vec![
        listed(&[bookmark(11, false)], Then::Break),
        Reply::Unreachable,
        ok(&[&event("ADDED", &object("b", 12))], Then::Hang),
    ])
    .await;
    assert_eq!(words[0], "bookmark 11");
    assert!(words[1].starts_with("lost Transport: watch things: no complete answer"), "{words:?}");
    assert!(words[2].starts_with("lost Transport: watch things: "), "{words:?}");
    assert_eq!(words[3..5], ["resumed", "seen b 12"]);
    assert!(asked[1].contains("resourceVersion=11&") && asked[2].contains("resourceVersion=11&"), "{asked:?}");
}

#[tokio::test(start_paused = true)]
async fn a_silent_connection_is_dead() {
    let started = Instant::now();
    let (following, mut received, _asked) = follower(Encoding::Json, vec![listed(&[bookmark(11, false)], Then::Hang)]);
    let listening = async {
        while let Some(input) = received.recv().await {
            if let Input::WatchLost { end, error, .. } = input {
                return (end, error);
            }
        }
        panic!("the loss is not told of");
    };
    let lost = tokio::select! { () = following => panic!("no caller ended it"), lost = listening => lost };
    assert_eq!(lost, (WatchEnd::Transport, "watch things: nothing for 150 s, not even a bookmark".to_owned()));
    assert_eq!(started.elapsed(), SILENCE_MAX);
}

#[tokio::test(start_paused = true)]
async fn an_expired_position_leads_to_a_new_list_wherever_it_shows() {
    let expired = event("ERROR", r#"{"kind":"Status","code":410,"reason":"Expired","message":"too old"}"#);
    let gone = event("ERROR", r#"{"kind":"Status","code":0,"reason":"Gone","message":"too old"}"#);
    let scripts = [
        vec![listed(std::slice::from_ref(&expired), Then::End)],
        vec![listed(std::slice::from_ref(&gone), Then::Hang)],
        vec![listed(&[bookmark(11, false)], Then::End), refuse(410, "Expired")],
        vec![listed(&[bookmark(11, false)], Then::Break), refuse(410, "Expired")],
    ];
    for mut script in scripts {
        script.push(listed(&[], Then::Hang));
        let (words, asked) = after_list(script).await;
        let relisted = words.iter().position(|word| word == "begun").unwrap();
        assert_eq!(words[relisted..relisted + 3], LISTED);
        assert!(asked.last().unwrap().contains("sendInitialEvents"), "{asked:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_that_fails_says_why_and_is_tried_again() {
    for (status, reason) in [(401, "Unauthorized"), (403, "Forbidden"), (404, "NotFound"), (500, "InternalError")] {
        let (words, _) = play(vec![refuse(status, reason), refuse(status, reason), listed(&[], Then::Hang)]).await;
        let failed = format!("failed: list things: the API server answers {status}: because");
        // A new list is reported only when it gets an answer, so that the failure stays visible.
        assert_eq!(words[..3], ["begun".to_owned(), failed.clone(), failed]);
        assert_eq!(words[3..6], LISTED);
    }
}

#[tokio::test(start_paused = true)]
async fn retry_after_is_honoured() {
    let busy =
        Reply::Answer { status: 429, retry_after: Some(40), lines: vec!["slow down".to_owned()], then: Then::End };
    let started = Instant::now();
    let (words, _) = play_in(Encoding::Protobuf, vec![busy, listed(&[], Then::Break), Reply::Unreachable]).await;
    assert_eq!(words[1], "failed: list things: the API server answers 429: slow down");
    assert!(started.elapsed() >= Duration::from_secs(40));
    assert_eq!(words[2..5], LISTED);
}

#[tokio::test(start_paused = true)]
async fn an_error_event_is_a_loss_and_three_in_a_row_a_new_list() {
    let broken = event("ERROR", r#"{"kind":"Status","code":500,"reason":"InternalError","message":"no"}"#);
    let again = ok(&[&broken], Then::End);
    let script = vec![listed(std::slice::from_ref(&broken), Then::End), again.clone(), again, listed(&[], Then::Hang)];
    let (words, asked) = after_list(script).await;
    assert_eq!(words[0], "lost Refused: watch things: the API server ended it with 500 InternalError: no");
    let relisted = words.iter().position(|word| word == "begun").unwrap();
    assert_eq!(words[relisted..relisted + 3], LISTED);
    assert_eq!(asked.len(), 4);
}

#[tokio::test(start_paused = true)]
async fn garbage_is_never_an_object() {
    let garbage = ["<html>", "{}", "[]", r#"{"type":"ADDED"}"#, r#"{"type":"NEW","object":{}}"#, "\u{7f}\u{1}"];
    for line in garbage {
        let (words, asked) = after_list(vec![
            listed(&[event("ADDED", &object("b", 11)), line.to_owned()], Then::Hang),
            ok(&[&event("ADDED", &object("c", 12))], Then::Hang),
        ])
        .await;
        assert_eq!(words[0], "seen b 11", "{line}");
        assert!(words[1].starts_with("lost Refused: watch things: the answer a line is "), "{line}: {words:?}");
        assert_eq!(words[2..4], ["resumed", "seen c 12"], "{line}");
        assert!(asked[1].contains("resourceVersion=11&"), "{line}");

        let (words, _) = play(vec![ok(&[line], Then::Hang), listed(&[], Then::Hang)]).await;
        assert_eq!(words[0], "begun");
        assert!(words[1].starts_with("failed: list things: the answer a line is "), "{line}: {words:?}");
        assert_eq!(words[2..5], LISTED, "{line}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_page_that_is_no_list_empties_nothing() {
    let no_lists = [
        "{}",
        "<html>",
        r#"{"kind":"Status","metadata":{},"status":"Success"}"#,
        r#"{"kind":"PodList","metadata":{}}"#,
    ];
    for body in no_lists {
        let (words, _) = play(vec![refuse(422, "Invalid"), ok(&[body], Then::End)]).await;
        assert_eq!(words.len(), 2, "{body}: {words:?}");
        assert!(words[1].starts_with("failed: list things: the answer "), "{body}: {words:?}");
    }
    let unversioned = r#"{"kind":"PodList","metadata":{},"items":[]}"#;
    let (words, _) = play(vec![refuse(422, "Invalid"), ok(&[unversioned], Then::End)]).await;
    assert!(words.last().unwrap().contains("has no resourceVersion"), "{words:?}");
}

#[tokio::test(start_paused = true)]
async fn an_unusable_object_is_left_out_and_the_rest_goes_on() {
    let no_uid =
        r#"{"kind":"Thing","apiVersion":"v1","metadata":{"name":"x","namespace":"ns","resourceVersion":"12"}}"#;
    let more = [event("MODIFIED", no_uid), event("ADDED", &object("b", 13))];
    let (words, _) = after_list(vec![listed(&more, Then::Hang)]).await;
    assert!(words[0].starts_with("unusable: ") && words[0].contains("no uid"), "{words:?}");
    assert_eq!(words[1], "seen b 13");
}

#[tokio::test(start_paused = true)]
async fn a_deletion_that_names_nothing_leads_to_a_new_list() {
    let no_uid =
        r#"{"kind":"Thing","apiVersion":"v1","metadata":{"name":"x","namespace":"ns","resourceVersion":"12"}}"#;
    let (words, _) = after_list(vec![listed(&[event("DELETED", no_uid)], Then::Hang), listed(&[], Then::Hang)]).await;
    assert!(words[0].starts_with("unusable: "), "{words:?}");
    assert_eq!(words[1..4], LISTED);
}

#[tokio::test(start_paused = true)]
async fn a_watch_list_that_stops_short_is_no_list() {
    for then in [Then::End, Then::Break] {
        let (words, _) = play(vec![ok(&[&event("ADDED", &object("a", 5))], then), listed(&[], Then::Hang)]).await;
        assert_eq!(words[..2], ["begun", "listed a 5"]);
        assert!(words[2].starts_with("failed: "), "{words:?}");
        assert_eq!(words[3..6], LISTED);
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_ends_every_watch_at_once_is_not_asked_in_a_loop() {
    let mut script = vec![listed(&[], Then::End)];
    script.extend(std::iter::repeat_n(ok(&[], Then::End), 10));
    let started = Instant::now();
    let (words, asked) = play_in(Encoding::Protobuf, script).await;
    assert_eq!(words[..3], LISTED);
    assert!(words[3..].iter().all(|word| word.starts_with("lost") || word == "resumed"), "{words:?}");
    assert!(asked.len() < 11 || started.elapsed() > Duration::from_secs(60), "{} requests", asked.len());
}

#[tokio::test(start_paused = true)]
async fn protobuf_that_is_none_is_an_error_of_the_collection() {
    let framed = |bytes: &[u8]| [u32::try_from(bytes.len()).unwrap().to_be_bytes().to_vec(), bytes.to_vec()].concat();
    let cases = [
        (framed(b"\xff"), "watch things: the answer a frame is not a watch event: the protobuf ends inside a field"),
        (framed(b""), "watch things: the answer a frame is a watch event of the unknown type \"\""),
        (
            b"{\"type\":\"ADDED\"}\n".to_vec(),
            "the stream announces a frame of 2065855609 bytes; at most 16777216 are allowed",
        ),
        (b"\0\0\0\x09abc".to_vec(), "the stream ended inside a frame"),
    ];
    for (bytes, why) in cases {
        let broken = Reply::Bytes { content_type: media::PROTOBUF, bytes };
        let more = ok(&[&event("ADDED", &object("c", 12))], Then::Hang);
        let (words, _) = play_in(Encoding::Protobuf, vec![listed(&[], Then::End), broken.clone(), more]).await;
        assert_eq!(words[..3], LISTED);
        assert!(words[3].starts_with("lost Early: ") && words[4] == "resumed", "{words:?}");
        assert!(words[5].starts_with("lost ") && words[5].contains(why), "{words:?}");
        assert_eq!(words[6..8], ["resumed", "seen c 12"]);
        let (words, _) = play_in(Encoding::Protobuf, vec![broken, listed(&[], Then::Hang)]).await;
        assert!(
            words[1].starts_with("failed: ") && words[1].contains(why.trim_start_matches("watch things: ")),
            "{words:?}"
        );
        assert_eq!(words[2..5], LISTED);
    }
}
