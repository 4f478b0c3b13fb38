use super::*;

const GRACE: Duration = Duration::from_secs(5);

async fn until(shutdown: Shutdown) -> anyhow::Result<()> {
    shutdown.requested().await;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn ends_when_all_have_ended_and_aborts_what_runs_until_the_end() {
    let shutdown = Shutdown::new();
    let mut tasks = Tasks::new();
    tasks.spawn("short", async { Ok(()) });
    tasks.spawn("long", until(shutdown.clone()));
    tasks.spawn_until_end("admin", std::future::pending());
    let stop = shutdown.clone();
    tasks.spawn("stopper", async move {
        tokio::time::sleep(Duration::from_secs(60)).await;
        stop.request();
        Ok(())
    });
    tasks.run(&shutdown, GRACE).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_first_failure_stops_the_others_and_is_named() {
    for (task, expected) in [("error", "task error failed: no luck"), ("panic", "task panic panicked: at 3")] {
        let shutdown = Shutdown::new();
        let mut tasks = Tasks::new();
        tasks.spawn("bystander", until(shutdown.clone()));
        let failing = async move {
            if task == "panic" {
                panic!("at {}", 3);
            }
            Err(anyhow::anyhow!("no luck"))
        };
        tasks.spawn_until_end(task, failing);
        let error = tasks.run(&shutdown, GRACE).await.unwrap_err();
        assert_eq!(error.to_string(), expected);
        assert!(shutdown.is_requested());
    }
}

#[tokio::test(start_paused = true)]
async fn what_does_not_stop_in_time_is_named_and_left() {
    let shutdown = Shutdown::new();
    let mut tasks = Tasks::new();
    tasks.spawn("stuck b", std::future::pending());
    tasks.spawn("stuck a", std::future::pending());
    tasks.spawn("polite", until(shutdown.clone()));
    shutdown.request();
    let error = tasks.run(&shutdown, GRACE).await.unwrap_err();
    assert_eq!(error.to_string(), "still running 5 s after the request to stop: stuck a, stuck b");
}

#[tokio::test]
async fn jobs_are_bounded_keyed_and_their_ends_told_apart() {
    let mut jobs: Jobs<&str, u32> = Jobs::new(3);
    jobs.spawn("done", async { 7 });
    jobs.spawn("panicked", async { panic!("oh") });
    jobs.spawn("aborted", std::future::pending());
    assert!(!jobs.has_room());
    jobs.abort(&"aborted");
    let mut ends = vec![jobs.next().await, jobs.next().await, jobs.next().await];
    ends.sort_by_key(|(key, _)| *key);
    assert_eq!(
        ends,
        vec![("aborted", JobEnd::Aborted), ("done", JobEnd::Done(7)), ("panicked", JobEnd::Panicked("oh".to_owned())),]
    );
    assert!(jobs.is_empty());
}
