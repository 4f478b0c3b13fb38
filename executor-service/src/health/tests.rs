use super::*;
use engine::object::Name;
use engine::work::Term;
use runtime::metrics::Book;

fn health(clock: Clock) -> Arc<Health> {
    let mut registry = Registry::default();
    let metrics = Metrics::register(&mut Book::new(&mut registry));
    Health::new(clock, metrics, Some(registry))
}

fn status(phase: Phase, draining: bool) -> Status {
    let term = Some(Term { election: Name::from("election"), number: 3 });
    Status {
        phase,
        term,
        started: 2,
        buffered: 1,
        concurrency: 16,
        unacknowledged: 4,
        draining,
        credentials_refused: None,
    }
}

#[tokio::test(start_paused = true)]
async fn readiness_is_an_open_session_and_says_what_is_missing() {
    let clock = Clock::start();
    let health = health(clock);
    assert_eq!(health.readyz().lines, ["start: the service has not contacted the API server yet"]);
    health.starting("no answer".to_owned());
    assert_eq!(health.readyz(), Readiness { ready: false, lines: vec!["start: no answer".to_owned()] });
    health.started("cluster");
    health.connecting("127.0.0.1:7450");
    health.failed(clock.now(), "refused");
    tokio::time::advance(Duration::from_secs(3)).await;
    health.turned(clock.now(), status(Phase::Waiting, false));
    let waiting = health.readyz();
    assert!(!waiting.ready);
    assert_eq!(
        waiting.lines,
        [
            "cluster: cluster",
            "session: none, waiting before the next attempt; the last was at 127.0.0.1:7450",
            "term: 3 of election election",
            "items: 2 in progress of at most 16, 1 waiting, 4 reports unacknowledged",
            "last error: 3 s ago, refused",
        ]
    );
    health.turned(clock.now(), status(Phase::Active { since: Time::ZERO }, false));
    assert!(health.readyz().ready);
    assert!(health.metrics().contains("ownergraph_executor_sessions 1.0\n"));
    health.turned(clock.now(), status(Phase::Active { since: Time::ZERO }, true));
    assert!(!health.readyz().ready);
}

#[tokio::test(start_paused = true)]
async fn an_executor_that_the_api_server_does_not_know_is_not_ready_and_says_why() {
    let clock = Clock::start();
    let health = health(clock);
    health.started("cluster");
    health.credentials(Some("401 \"Unauthorized\"".to_owned()));
    tokio::time::advance(Duration::from_secs(7)).await;
    let open = status(Phase::Active { since: Time::ZERO }, false);
    health.turned(clock.now(), Status { credentials_refused: Some(Time::ZERO), ..open.clone() });
    let refused = health.readyz();
    assert!(!refused.ready);
    assert!(
        refused.lines.contains(
            &"credentials: refused by the API server for 7 s, so the executor accepts no work: 401 \"Unauthorized\""
                .to_owned()
        ),
        "{refused:?}"
    );
    assert!(health.metrics().contains("ownergraph_executor_credentials_accepted 0.0\n"));
    health.turned(clock.now(), open);
    assert!(health.readyz().ready);
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_stands_still_is_not_alive() {
    let clock = Clock::start();
    let health = health(clock);
    tokio::time::advance(Duration::from_secs(30)).await;
    assert_eq!(health.livez(), Ok(()));
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(health.livez(), Err("the executor's loop has made no progress for 31 s".to_owned()));
    health.turned(clock.now(), status(Phase::Connecting, false));
    assert_eq!(health.livez(), Ok(()));
}

#[tokio::test(start_paused = true)]
async fn a_quiet_hour_is_no_stop_and_a_stop_shows_before_anybody_restarts_it() {
    let clock = Clock::start();
    let health = health(clock);
    for _ in 0..720 {
        tokio::time::advance(Duration::from_secs(5)).await;
        health.turned(clock.now(), status(Phase::Waiting, false));
        assert_eq!(health.livez(), Ok(()));
    }
    assert!(health.metrics().contains("ownergraph_executor_loop_idle_seconds 0.0\n"), "{}", health.metrics());
    tokio::time::advance(Duration::from_secs(20)).await;
    assert_eq!(health.livez(), Ok(()), "not yet");
    assert!(health.metrics().contains("ownergraph_executor_loop_idle_seconds 20.0\n"), "{}", health.metrics());
}
