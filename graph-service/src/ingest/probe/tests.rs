use super::*;
use crate::ingest::scripted::{Reply, Then, bookmark, event, object, ok, page, refuse, routed, server_in};
use engine::leader::Named;
use engine::object::GroupResource;
use kube_api::metadata::Encoding;
use std::sync::Arc;
use tokio::time::Instant;

fn probe(id: u64, namespace: Option<&str>, limit: Option<u32>) -> Probe {
    Probe {
        id: ProbeId(id),
        collection: GroupResource { group: Arc::from("apps"), resource: Arc::from("things") },
        kind: Arc::from("Thing"),
        version: Arc::from("v1"),
        namespace: namespace.map(Arc::from),
        limit,
        object: None,
        fresh: false,
    }
}

type Told = (Result<(String, Vec<String>, bool), String>, Vec<String>);

/// The encoding of the server makes no difference.
async fn ask(probe: Probe, script: Vec<Reply>) -> Told {
    let json = ask_in(Encoding::Json, probe.clone(), script.clone()).await;
    let protobuf = ask_in(Encoding::Protobuf, probe, script).await;
    assert_eq!((json.0.as_ref().ok(), &json.1), (protobuf.0.as_ref().ok(), &protobuf.1));
    json
}

async fn ask_in(encoding: Encoding, probe: Probe, script: Vec<Reply>) -> Told {
    let (clients, asked) = server_in(encoding, script);
    let answer = answer(&clients, 2, &probe).await.map(|answer| {
        let names = answer.objects.iter().map(|object| object.name.to_string()).collect();
        (answer.resource_version.to_string(), names, answer.complete)
    });
    let asked = asked.lock().unwrap().clone();
    (answer.map_err(|failure| failure.sentence), asked)
}

#[tokio::test(start_paused = true)]
async fn a_position_is_one_request() {
    let (answer, asked) = ask(probe(1, None, Some(1)), vec![ok(&[&page(7, "t", &[object("a", 5)])], Then::End)]).await;
    assert_eq!(answer, Ok(("7".to_owned(), vec!["a".to_owned()], false)));
    assert_eq!(asked, ["/apis/apps/v1/things?limit=1"]);
}

#[tokio::test(start_paused = true)]
async fn a_whole_list_is_all_pages_at_the_position_of_the_first() {
    let script = vec![
        ok(&[&page(7, "t", &[object("a", 5), object("b", 5)])], Then::End),
        ok(&[&page(9, "", &[object("c", 5)])], Then::End),
    ];
    let (answer, asked) = ask(probe(1, Some("ns"), None), script).await;
    assert_eq!(answer, Ok(("7".to_owned(), ["a", "b", "c"].map(str::to_owned).to_vec(), true)));
    assert_eq!(asked[0], "/apis/apps/v1/namespaces/ns/things?limit=2");
    assert_eq!(asked[1], "/apis/apps/v1/namespaces/ns/things?limit=2&continue=t");
}

#[tokio::test(start_paused = true)]
async fn an_answer_with_a_hole_is_no_answer() {
    let hole = || vec![ok(&[&page(7, "", &["{}".to_owned()])], Then::End)];
    assert!(ask(probe(1, None, None), hole()).await.0.is_err());
    let (limited, _) = ask(probe(1, None, Some(1)), hole()).await;
    assert_eq!(limited, Ok(("7".to_owned(), Vec::new(), false)), "only the position is good");
    let elsewhere = vec![ok(&[&page(7, "", &[object("a", 5)])], Then::End)];
    assert!(ask(probe(1, Some("other"), None), elsewhere).await.0.unwrap_err().contains("of namespace \"ns\""));
}

#[tokio::test(start_paused = true)]
async fn failures_are_sentences() {
    let cases = [
        (refuse(403, "Forbidden"), "list things.apps: the API server answers 403: because"),
        (ok(&["<html>"], Then::End), "list things.apps: the answer is not a list"),
        (ok(&["{\"kind\""], Then::Break), "list things.apps: no complete answer"),
        (Reply::Unreachable, "list things.apps: "),
    ];
    for (reply, expected) in cases {
        let error = ask(probe(1, None, None), vec![reply]).await.0.unwrap_err();
        assert!(error.starts_with(expected), "{error}");
    }
    for (limit, expected) in [(None, 30), (Some(1), 15)] {
        let silent = ask(probe(1, None, limit), Vec::new()).await.0.unwrap_err();
        assert_eq!(silent, format!("list things.apps: no answer within {expected} s"));
    }
    for (by, expected) in [
        (CheckBy::List, "list things.apps: no answer within 30 s"),
        (CheckBy::Read, "get things.apps: no answer within 30 s"),
    ] {
        let named = Probe { object: Some(Named { name: "a".into(), by }), ..probe(1, None, None) };
        assert_eq!(ask(named, Vec::new()).await.0, Err(expected.to_owned()));
    }
    let (strange, asked) = ask(probe(1, Some("../x"), None), Vec::new()).await;
    assert!(strange.unwrap_err().contains("not a valid namespace") && asked.is_empty());
}

#[tokio::test(start_paused = true)]
async fn so_many_at_a_time_and_every_one_is_answered() {
    // No request is answered: all time out, a bounded number at a time.
    let (clients, asked) = routed(|_| None);
    let (inputs, mut answers) = mpsc::channel(1);
    let (probes, queue) = mpsc::channel(QUEUE_MAX);
    let (refusals, refused) = mpsc::channel(1);
    let shutdown = Shutdown::new();
    let queues = Queues { probes: queue, refusals: refused };
    let running = run(clients, 2, queues, inputs, shutdown.clone());
    let checking = async {
        for id in 0..100 {
            probes.send(probe(id, None, Some(1))).await.unwrap();
        }
        refusals.send(ProbeId(100)).await.unwrap();
        let mut answered = Vec::new();
        for count in 0..101 {
            let Some(Input::Probed { probe, answer: Err(_) }) = answers.recv().await else { panic!("{count}") };
            answered.push(probe.0);
            assert!(asked.lock().unwrap().len() <= count + IN_FLIGHT_MAX);
        }
        answered.sort_unstable();
        assert!(answered.iter().copied().eq((0..100).chain([100])), "{answered:?}");
        shutdown.request();
    };
    let (ended, ()) = tokio::join!(running, checking);
    ended.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_position_is_asked_for_while_whole_lists_hang() {
    let (clients, asked) = routed(|uri| uri.ends_with("limit=1").then(|| ok(&[&page(7, "", &[])], Then::End)));
    let (inputs, mut answers) = mpsc::channel(1);
    let (probes, queue) = mpsc::channel(QUEUE_MAX);
    let (_refusals, refused) = mpsc::channel(1);
    let shutdown = Shutdown::new();
    let running = run(clients, 2, Queues { probes: queue, refusals: refused }, inputs, shutdown.clone());
    let checking = async {
        // One list more than those in progress and those that wait.
        let last = (LISTS_MAX + QUEUE_MAX) as u64;
        let asking = async {
            for id in 0..=last {
                probes.send(probe(id, Some("ns"), None)).await.unwrap();
            }
            probes.send(probe(last + 1, None, Some(1))).await.unwrap();
        };
        let answering = async {
            let begun = Instant::now();
            let Some(Input::Probed { probe, answer: Err(why) }) = answers.recv().await else { panic!("no refusal") };
            assert_eq!((probe, why.sentence.as_str()), (ProbeId(last), "more than 4096 probes are waiting"));
            let Some(Input::Probed { probe, answer: Ok(_) }) = answers.recv().await else { panic!("no position") };
            assert_eq!((probe, begun.elapsed()), (ProbeId(last + 1), Duration::ZERO));
            assert_eq!(asked.lock().unwrap().len(), LISTS_MAX + 1);
            for count in 0..LISTS_MAX {
                let Some(Input::Probed { answer: Err(_), .. }) = answers.recv().await else { panic!("{count}") };
            }
        };
        tokio::join!(asking, answering);
        shutdown.request();
    };
    let (ended, ()) = tokio::join!(running, checking);
    ended.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_watch_for_a_moment_tells_the_last_change_of_a_span() {
    let changed = |version: u64| event("MODIFIED", &object("a", version));
    let span = || Span {
        collection: GroupResource { group: Arc::from("apps"), resource: Arc::from("things") },
        version: Arc::from("v1"),
        from: ResourceVersion::parse("10"),
        to: ResourceVersion::parse("20"),
    };
    let error = event("ERROR", r#"{"kind":"Status","code":410}"#);
    for (lines, expected) in [
        (vec![bookmark(20, false)], Some("10")),
        (vec![bookmark(15, false), bookmark(25, false)], Some("10")),
        (vec![changed(12), changed(18), bookmark(20, false)], Some("18")),
        (vec![changed(12), changed(20)], Some("20")),
        (vec![changed(12), changed(23)], Some("12")),
        (vec![changed(12)], None),
        (vec![error], None),
        (vec!["{".to_owned()], None),
    ] {
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        for encoding in [Encoding::Json, Encoding::Protobuf] {
            let (clients, asked) = server_in(encoding, vec![ok(&lines, Then::End)]);
            let found = last(clients, span()).await.ok().map(|version| version.to_string());
            assert_eq!(found.as_deref(), expected, "{lines:?}");
            let query = "watch=true&allowWatchBookmarks=true&resourceVersion=10&timeoutSeconds=3";
            assert_eq!(asked.lock().unwrap()[0], format!("/apis/apps/v1/things?{query}"));
        }
    }
    let (clients, _) = server_in(Encoding::Protobuf, vec![ok(&[], Then::Hang)]);
    assert!(last(clients, span()).await.is_err(), "it does not wait for ever");
}
