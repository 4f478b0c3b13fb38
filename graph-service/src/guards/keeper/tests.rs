use super::*;
use crate::grpc::small_world::config;
use engine::guard::{Guard, Rule};
use engine::leader::{Input, Leader, Mode};
use engine::object::ResourceVersion;
use engine::scope::Scope;
use engine::time::Time;
use http::{Request, Response};
use http_body_util::BodyExt as _;
use kube::client::Body;
use std::sync::{Arc, Mutex};

/// A pause whose lifetime of a minute ended long ago.
fn expired_pause() -> GuardView {
    let guard = Guard {
        id: GuardId { kind: GuardKind::Pause, name: "p".into() },
        uid: Uid::parse("uid-p").unwrap(),
        resource_version: ResourceVersion::parse("5"),
        generation: 2,
        scope: Scope::default(),
        reason: "because".to_owned(),
        actor: String::new(),
        created: Duration::ZERO,
        lifetime: Some(Duration::from_secs(60)),
        elapsed: Duration::ZERO,
        read_at: Duration::ZERO,
        recorded: Recorded::default(),
        problem: String::new(),
        rule: Rule::Hold,
    };
    let mut leader = Leader::new(config(Mode::Enforce), 7);
    leader.handle(Time::ZERO, Input::GuardSeen(guard));
    leader.tick(Time::from_origin(Duration::from_secs(61)));
    leader.queries().guards().remove(0)
}

#[tokio::test(start_paused = true)]
async fn an_expired_pause_is_deleted_only_as_it_is_known() {
    for (generation, deleted) in [(2, true), (3, false)] {
        let seen = Arc::<Mutex<Vec<(Method, Value)>>>::default();
        let requests = Arc::clone(&seen);
        let api = tower::service_fn(move |request: Request<Body>| {
            let requests = Arc::clone(&requests);
            async move {
                let (head, body) = request.into_parts();
                let body = body.collect().await.unwrap().to_bytes();
                requests.lock().unwrap().push((head.method, serde_json::from_slice(&body).unwrap_or_default()));
                let metadata = json!({ "uid": "uid-p", "generation": generation, "resourceVersion": "9" });
                Ok::<_, std::convert::Infallible>(Response::new(Body::from(
                    json!({ "metadata": metadata }).to_string().into_bytes(),
                )))
            }
        });
        let clock = Clock::start();
        tokio::time::advance(KEPT_FOR + Duration::from_secs(61)).await;
        let reader = Reader::of(Leader::new(config(Mode::Enforce), 7));
        let mut keeper = Keeper::new(kube::Client::new(api, "default"), reader, clock);
        keeper.keep(&expired_pause()).await.unwrap();
        let sent = seen.lock().unwrap();
        let deletions: Vec<&Value> =
            sent.iter().filter(|(method, _)| method == Method::DELETE).map(|(_, body)| body).collect();
        let expected = json!({ "uid": "uid-p", "resourceVersion": "9" });
        assert_eq!(
            deletions.iter().map(|body| &body["preconditions"]).collect::<Vec<_>>(),
            if deleted { vec![&expected] } else { vec![] }
        );
    }
}
