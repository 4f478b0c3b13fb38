//! Files that change while a process runs.

use super::*;

/// Long enough for two reads of the files.
const TWO_LOOKS: Duration = Duration::from_secs(5);

#[tokio::test(start_paused = true)]
async fn new_connections_get_new_certificates_and_old_ones_live_on() {
    let (files, first, second) = (Files::new(), Authority::new(), Authority::new());
    let (server, caller) = both(&files, &first).await;
    let mut tasks = Tasks::new();
    tasks.spawn_until_end("files", Arc::clone(&server).follow());
    let mut old = meet(&server, &caller, HOST).await.server.unwrap().1;

    // A new authority for both: all earlier certificates are invalid.
    files.server_flags(&second, &second.leaf(Leaf::server(HOST)));
    files.caller_flags(&second, Some(&second.leaf(Leaf::client("executor-2", "ownergraph:executors"))));
    let before_the_look = meet(&server, &caller, HOST).await;
    assert!(before_the_look.caller.unwrap_err().to_string().contains("none of the authorities in --tls-ca"));
    tokio::time::sleep(TWO_LOOKS).await;
    assert_eq!(meet(&server, &caller, HOST).await.caller.unwrap(), "executor-2");
    assert!(old.carry().await);
    assert_eq!(counted(&server, "ownergraph_tls_reloads_total{result=\"taken\"}"), Some(1));
    assert_eq!(counted(&server, "ownergraph_tls_reloads_total{result=\"unusable\"}"), None);
}

#[tokio::test(start_paused = true)]
async fn half_a_pair_keeps_the_last_good_one_and_is_said_once() {
    let (files, authority) = (Files::new(), Authority::new());
    let (server, caller) = both(&files, &authority).await;
    let mut tasks = Tasks::new();
    tasks.spawn_until_end("files", Arc::clone(&server).follow());
    let unusable = || counted(&server, "ownergraph_tls_reloads_total{result=\"unusable\"}");

    // Both ends have half a pair each.
    let next = authority.leaf(Leaf::server(HOST).between(2020, 4090));
    let client = authority.leaf(Leaf::client("executor-2", "ownergraph:executors"));
    files.write("server.crt", &next.certificate);
    files.write("client.crt", &client.certificate);
    for _ in 0..10 {
        tokio::time::sleep(TWO_LOOKS).await;
        assert_eq!(meet(&server, &caller, HOST).await.caller.unwrap(), "executor-1");
        assert_eq!(unusable(), Some(1));
    }
    let until = counted(&server, "ownergraph_tls_certificate_expiry_timestamp_seconds{}");
    files.write("server.key", &next.key);
    files.write("client.key", &client.key);
    tokio::time::sleep(TWO_LOOKS).await;
    assert_eq!(meet(&server, &caller, HOST).await.caller.unwrap(), "executor-2");
    assert_eq!(counted(&server, "ownergraph_tls_reloads_total{result=\"taken\"}"), Some(1));
    assert_ne!(counted(&server, "ownergraph_tls_certificate_expiry_timestamp_seconds{}"), until);

    // Missing files and an expired certificate change nothing.
    let expired = authority.leaf(Leaf::server(HOST).between(2001, 2002));
    for (certificate, key) in [("", next.key.as_str()), (&expired.certificate, &expired.key)] {
        files.write("server.crt", certificate);
        files.write("server.key", key);
        tokio::time::sleep(TWO_LOOKS).await;
        assert_eq!(meet(&server, &caller, HOST).await.caller.unwrap(), "executor-2");
    }
    std::fs::remove_file(files.path().join("server.crt")).unwrap();
    tokio::time::sleep(TWO_LOOKS).await;
    assert_eq!(meet(&server, &caller, HOST).await.caller.unwrap(), "executor-2");
    assert_eq!(unusable(), Some(4));
}

#[tokio::test(start_paused = true)]
async fn files_that_fit_at_the_second_look_are_never_complained_of() {
    let (files, authority) = (Files::new(), Authority::new());
    let (server, _) = both(&files, &authority).await;
    let mut tasks = Tasks::new();
    tasks.spawn_until_end("files", Arc::clone(&server).follow());
    let next = authority.leaf(Leaf::server(HOST));
    // The first read is immediate, the next ones follow after two seconds each.
    tokio::time::sleep(Duration::from_secs(1)).await;
    files.write("server.crt", &next.certificate);
    tokio::time::sleep(Duration::from_secs(2)).await;
    files.write("server.key", &next.key);
    tokio::time::sleep(TWO_LOOKS).await;
    assert_eq!(counted(&server, "ownergraph_tls_reloads_total{result=\"taken\"}"), Some(1));
    assert_eq!(counted(&server, "ownergraph_tls_reloads_total{result=\"unusable\"}"), None);
}

#[tokio::test(start_paused = true)]
async fn clients_of_another_authority_are_trusted_as_long_as_it_is_named() {
    let (files, authority, cluster) = (Files::new(), Authority::new(), Authority::new());
    let server = files.serve(&authority, &authority.leaf(Leaf::server(HOST))).await.unwrap();
    let mut tasks = Tasks::new();
    tasks.spawn_until_end("files", Arc::clone(&server).follow());
    let ours = authority.leaf(Leaf::client("executor-1", "ownergraph:executors"));
    let theirs = cluster.leaf(Leaf::client("ada", "people"));
    let bundle = cluster.pem().into_bytes();
    for (also, is_usable, is_trusted) in [
        (None, true, false),
        (Some(bundle.clone()), true, true),
        // A file that is not usable changes nothing.
        (Some(b"no certificate".to_vec()), false, true),
        (Some(Vec::new()), false, true),
        (None, true, false),
    ] {
        assert_eq!(server.trust_also(also).is_ok(), is_usable);
        tokio::time::sleep(TWO_LOOKS).await;
        let caller = files.call(&authority, Some(&theirs)).await.unwrap();
        assert_eq!(meet(&server, &caller, HOST).await.server.is_some(), is_trusted);
        let caller = files.call(&authority, Some(&ours)).await.unwrap();
        assert_eq!(meet(&server, &caller, HOST).await.caller.unwrap(), "executor-1");
    }
}
