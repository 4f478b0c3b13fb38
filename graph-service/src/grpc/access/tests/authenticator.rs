//! Callers and rights over time.

use super::*;
use crate::grpc::small_world::reason;
use runtime::admin::Visitor;
use runtime::tls::{Peer, PeerCertificate};
use tokio::time::advance;
use tonic::Code;

fn token(user: &str) -> Credentials {
    Credentials::Token(user.to_owned())
}

fn to_list(namespace: &str) -> Asked {
    Asked::Resource { verb: "list", resource: "graphobjects", namespace: namespace.to_owned() }
}

#[tokio::test(start_paused = true)]
async fn who_is_known_is_asked_every_ten_seconds_and_who_is_not_every_two() {
    let oracle = Oracle::default().knows("eve");
    let authenticator = oracle.authenticator();
    for _ in 0..5 {
        assert_eq!(authenticator.identify(&token("eve")).await.unwrap().caller.user, "eve");
        let refused = authenticator.identify(&token("mallory")).await.unwrap_err();
        assert_eq!((refused.code(), reason(&refused).as_str()), (Code::Unauthenticated, "CREDENTIALS_INVALID"));
    }
    assert_eq!(oracle.asked(), 2);
    advance(Duration::from_secs(2)).await;
    authenticator.identify(&token("mallory")).await.unwrap_err();
    authenticator.identify(&token("eve")).await.unwrap();
    assert_eq!(oracle.asked(), 3);
    oracle.forget_user("eve");
    advance(Duration::from_secs(8)).await;
    authenticator.identify(&token("eve")).await.unwrap_err();
    assert_eq!(oracle.asked(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_right_is_kept_for_ten_seconds_and_its_lack_for_two() {
    let oracle = Oracle::default().allows("eve", "list", "graphobjects", "shop");
    let (authenticator, eve) = (oracle.authenticator(), Arc::new(caller("eve")));
    for (seconds, shop, bank, asked) in
        [(0, true, false, 2), (1, true, false, 2), (1, true, false, 3), (8, true, false, 5)]
    {
        advance(Duration::from_secs(seconds)).await;
        assert_eq!(authenticator.may(&eve, to_list("shop")).await.unwrap(), shop);
        assert_eq!(authenticator.may(&eve, to_list("bank")).await.unwrap(), bank);
        assert_eq!(oracle.asked(), asked);
    }
    // The same name in another group may have other rights.
    let other = Arc::new(Caller { groups: vec!["g".to_owned()], ..caller("eve") });
    authenticator.may(&other, to_list("shop")).await.unwrap();
    assert_eq!(oracle.asked(), 6);
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_is_silent_allows_nothing_and_denies_nothing() {
    let oracle = Oracle::default().knows("eve").allows("eve", "list", "graphobjects", "shop");
    let (authenticator, eve) = (oracle.authenticator(), Arc::new(caller("eve")));
    oracle.silence(true);
    for refused in [
        authenticator.identify(&token("eve")).await.unwrap_err(),
        authenticator.may(&eve, to_list("shop")).await.unwrap_err(),
    ] {
        assert_eq!((refused.code(), reason(&refused).as_str()), (Code::Unavailable, "REVIEW_UNAVAILABLE"));
    }
    // More than the allowed number of concurrent questions: all are answered in time.
    let names: Vec<String> = (0..100).map(|number| format!("n{number}")).collect();
    let began = Instant::now();
    let many = futures::future::join_all(names.iter().map(|name| authenticator.may(&eve, to_list(name)))).await;
    assert!(many.iter().all(|answer| answer.as_ref().is_err_and(|status| status.code() == Code::Unavailable)));
    assert_eq!(began.elapsed(), ANSWER_WITHIN);
    oracle.silence(false);
    authenticator.identify(&token("eve")).await.unwrap();
    assert!(authenticator.may(&eve, to_list("shop")).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn the_admin_port_is_for_who_may_get_its_paths() {
    let oracle = Oracle::default().knows("prometheus").allows("prometheus", "get", "/metrics", "");
    let authenticator = oracle.authenticator();
    let visit = async |authorization: Option<&str>, path: &str| {
        let authorization = authorization.map(|text| text.parse().unwrap());
        let visitor = Visitor { peer: Peer::Tls(None), authorization, path: path.to_owned() };
        authenticator.visit(visitor).await.map_err(|status| status.code())
    };
    let known = Some("Bearer prometheus");
    assert_eq!(visit(known, "/metrics").await, Ok(()));
    assert_eq!(visit(known, "/debug/graph").await, Err(Code::PermissionDenied));
    assert_eq!(visit(Some("Bearer guess"), "/metrics").await, Err(Code::Unauthenticated));
    assert_eq!(visit(None, "/metrics").await, Err(Code::Unauthenticated));
    oracle.silence(true);
    assert_eq!(visit(known, "/readyz").await, Err(Code::Unavailable));
}

#[tokio::test(start_paused = true)]
async fn a_certificate_is_good_until_its_end_and_a_call_without_anything_never() {
    let authenticator = Oracle::default().authenticator();
    let ends = Instant::now() + Duration::from_secs(60);
    let certificate = PeerCertificate { user: "executor".to_owned(), groups: vec!["g".to_owned()], not_after: ends };
    let shown = Credentials::Certificate(Arc::new(certificate));
    let identity = authenticator.identify(&shown).await.unwrap();
    assert_eq!((identity.caller.groups.join(","), identity.ends), ("g,system:authenticated".to_owned(), Some(ends)));
    advance(Duration::from_secs(60)).await;
    assert_eq!(reason(&authenticator.identify(&shown).await.unwrap_err()), "CREDENTIALS_INVALID");
    assert_eq!(reason(&authenticator.identify(&Credentials::Missing).await.unwrap_err()), "CREDENTIALS_MISSING");
    assert_eq!(
        reason(&authenticator.identify(&Credentials::Unreadable("odd")).await.unwrap_err()),
        "CREDENTIALS_INVALID"
    );
    // {"aud":["others"]}
    let foreign = Credentials::Token("e30.eyJhdWQiOlsib3RoZXJzIl19.c2ln".to_owned());
    assert_eq!(reason(&authenticator.identify(&foreign).await.unwrap_err()), "TOKEN_FOR_OTHER_AUDIENCE");
}

#[tokio::test(start_paused = true)]
async fn the_claims_of_a_token_choose_the_audience_that_is_asked_for() {
    // The claims: {"aud":["ownergraph"]}, {"aud":"ownergraph"}, {"aud":["ownergraph","x"]}, {"aud":["others"]}, {}.
    let claims =
        ["eyJhdWQiOlsib3duZXJncmFwaCJdfQ", "eyJhdWQiOiJvd25lcmdyYXBoIn0", "eyJhdWQiOlsib3duZXJncmFwaCIsIngiXX0"];
    let ours = claims.map(|claims| format!("e30.{claims}.c2ln"));
    let others = ["e30.eyJhdWQiOlsib3RoZXJzIl19.c2ln", "e30.e30.c2ln", "opaque"].map(str::to_owned);
    for api_server_tokens in [false, true] {
        let oracle = Oracle::default();
        let reviewed = Reviewed { api_server_tokens, ..reviewed() };
        let authenticator = Authenticator::asking(Box::new(oracle.clone()), &reviewed, AccessMetrics::default());
        for token in ours.iter().chain(&others) {
            authenticator.identify(&Credentials::Token(token.clone())).await.unwrap_err();
        }
        let asked: Vec<bool> = oracle.0.audiences.lock().unwrap().iter().map(Option::is_some).collect();
        assert_eq!(asked, [[true; 3], [!api_server_tokens; 3]].concat(), "{api_server_tokens}");
    }
}
