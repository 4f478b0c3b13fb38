use super::*;
use crate::ingest::scripted::{Reply, Then, ok, refuse, routed};
use tokio::time::Instant;

const CORE: &str = r#"{"kind":"APIGroupDiscoveryList","items":[{"metadata":{"name":""},"versions":[
    {"version":"v1","freshness":"Current","resources":[]}]}]}"#;
const GROUPS: &str = r#"{"kind":"APIGroupDiscoveryList","items":[{"metadata":{"name":"back.example.com"},"versions":[
    {"version":"v1","freshness":"Stale","resources":[]}]},{"metadata":{"name":"fresh.example.com"},"versions":[
    {"version":"v1","freshness":"Current","resources":[]}]}]}"#;
const PLAIN: &str = r#"{"kind":"APIResourceList","groupVersion":"back.example.com/v1","resources":[
    {"name":"things","namespaced":true,"kind":"Thing","verbs":["list","watch","delete"]}]}"#;

#[tokio::test(start_paused = true)]
async fn a_stale_version_is_asked_for_itself_and_one_that_does_not_answer_stays_stale() {
    let answers: [(Option<Reply>, bool); 4] = [
        (Some(ok(&[PLAIN], Then::End)), true),
        (Some(refuse(503, "ServiceUnavailable")), false),
        (Some(ok(&["404 page not found"], Then::End)), false),
        (None, false),
    ];
    for (answer, fresh) in answers {
        let (clients, asked) = routed(move |uri| match uri {
            "/api" => Some(ok(&[CORE], Then::End)),
            "/apis" => Some(ok(&[GROUPS], Then::End)),
            "/apis/back.example.com/v1" => answer.clone(),
            other => panic!("no test needs {other}"),
        });
        let began = Instant::now();
        let document = document(&clients).await.unwrap();
        assert!(began.elapsed() <= STALE_WITHIN);
        let back = document.groups.iter().find(|group| group.name == "back.example.com").unwrap();
        assert_eq!((back.versions[0].fresh, back.versions[0].resources.len()), (fresh, usize::from(fresh)));
        assert_eq!(asked.lock().unwrap().len(), 3);
    }
}
