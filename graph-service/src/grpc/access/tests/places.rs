//! The distribution of places for streams.

use super::*;
use crate::grpc::connection::Cut;
use crate::grpc::followers::Followers;
use crate::grpc::rights::Right;
use crate::grpc::stream::Encoded;
use futures::stream::BoxStream;
use runtime::tasks::Tasks;
use tonic::Code;
use tonic_types::StatusExt as _;

type Opened = Result<BoxStream<'static, Result<Encoded, Status>>, Status>;

fn open(followers: &Followers, connection: Option<Cut>, visibility: &Visibility) -> Opened {
    followers.open(connection, visibility, |reader| async move {
        reader.gone().await;
        Ok(())
    })
}

fn limit(opened: Opened) -> (String, String, String) {
    let Err(refused) = opened else { panic!("there is a place") };
    assert_eq!(refused.code(), Code::ResourceExhausted);
    let info = refused.get_error_details().error_info().unwrap().clone();
    assert_eq!(info.reason, "LIMIT_EXCEEDED");
    let told = |key: &str| info.metadata[key].clone();
    (told("limit"), told("limitName"), told("user"))
}

#[tokio::test(start_paused = true)]
async fn a_tenant_takes_no_place_of_another_and_none_of_the_auditor() {
    let tenants: Vec<String> = (0..16).map(|number| format!("tenant-{number}")).collect();
    let oracle = tenants.iter().fold(Oracle::default(), |oracle, tenant| oracle.shows(tenant, "shop"));
    let authenticator = oracle.shows("auditor", "").authenticator();
    let visibility = async |user: &str, namespace: &str| {
        let right = Right { verb: "watch", resource: "decisions" };
        let visibility = Visibility::of(Arc::clone(&authenticator), Arc::new(caller(user)), right);
        visibility.require(namespace).await.unwrap();
        visibility
    };
    let (_writers, followers) = Followers::new();
    let greedy = visibility("tenant-0", "shop").await;
    let opened: Vec<Opened> = (0..256).map(|_| open(&followers, None, &greedy)).collect();
    assert_eq!(opened.iter().filter(|opened| opened.is_ok()).count(), 16);
    let told = limit(open(&followers, None, &visibility("tenant-0", "shop").await));
    assert_eq!(told, ("16".into(), "streams of one caller".into(), "tenant-0".into()));
    let auditor = visibility("auditor", "").await;
    let mut held: Vec<Opened> = vec![open(&followers, None, &auditor)];
    assert!(held[0].is_ok(), "the auditor is served");

    for tenant in &tenants[1..14] {
        let visibility = visibility(tenant, "shop").await;
        held.extend((0..16).map(|_| open(&followers, None, &visibility)));
    }
    assert!(held.iter().all(Result::is_ok));
    let told = limit(open(&followers, None, &visibility("tenant-14", "shop").await));
    let name = "streams of callers without the right for all namespaces";
    assert_eq!(told, ("224".into(), name.into(), "tenant-14".into()));
    assert!(open(&followers, None, &auditor).is_ok(), "what is reserved is for those who may see everything");
}

#[tokio::test(start_paused = true)]
async fn a_connection_is_a_caller_where_callers_are_not_told_apart() {
    let (writers, followers) = Followers::new();
    let mut tasks = Tasks::new();
    tasks.spawn_until_end("stream writers", writers.run());
    let (one, other) = (Cut::default(), Cut::default());
    let mut held: Vec<Opened> = (0..16).map(|_| open(&followers, Some(one.clone()), &Visibility::default())).collect();
    assert!(held.iter().all(Result::is_ok));
    let told = limit(open(&followers, Some(one.clone()), &Visibility::default()));
    assert_eq!(told, ("16".into(), "streams of one caller".into(), String::new()));
    assert!(open(&followers, Some(other), &Visibility::default()).is_ok());
    held.pop();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(open(&followers, Some(one), &Visibility::default()).is_ok(), "the place of a stream that ended is free");
}
