//! A bearer token whose file changes while a connection is open.

use super::HOSTS;
use anyhow::Context;
use executor_service::{connect_over, connect_through};
use futures::StreamExt;
use graph_service::Connection;
use runtime::tls::{Caller, CallerFlags, Protocol, ServerFlags, ServerTls};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tests::certificates::{Authority, Mounted};
use tests::process::Directory;
use tokio::task::JoinSet;
use tonic::transport::Server;
use tonic::{Request, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

type Seen = Arc<Mutex<Vec<Option<String>>>>;

#[tokio::test(start_paused = true)]
async fn requests_carry_the_token_that_the_file_has_and_over_tls_only() -> anyhow::Result<()> {
    let directory = Directory::create()?;
    let ours = Authority::new("ours")?;
    let mounted = Mounted::new(directory.path().join("graph"), &ours.sign("graph", &HOSTS)?, &[&ours])?;
    let token = directory.path().join("token");
    std::fs::write(&token, "first")?;
    let serving = ServerFlags {
        tls_cert: Some(mounted.file("tls.crt").into()),
        tls_key: Some(mounted.file("tls.key").into()),
        client_ca: None,
    };
    let server = ServerTls::open(&serving).await?.context("the flags ask for TLS")?;
    let calling = CallerFlags {
        tls_ca: Some(mounted.file("ca.crt").into()),
        token_file: Some(token.clone()),
        ..CallerFlags::default()
    };
    let caller = Caller::open(&calling, true, ("--tls-server-name", None)).await?;

    let seen = Seen::default();
    let mut tasks = JoinSet::new();
    let (near, far) = tokio::io::duplex(64 * 1024);
    let shaken = async {
        let (stream, peer) = server.handshake(far, None, Protocol::Http2).await.context("a handshake")?;
        tasks.spawn(serve(Connection::new(stream).with_peer(peer), Arc::clone(&seen)));
        anyhow::Ok(())
    };
    let connected = connect_through(&caller, "localhost:1", ("the server", "localhost"), near);
    let (shaken, channel) = futures::future::join(shaken, connected).await;
    shaken?;
    let mut client = HealthClient::new(channel.map_err(anyhow::Error::msg)?);
    client.check(HealthCheckRequest::default()).await?;
    std::fs::write(&token, "second")?;
    tokio::time::sleep(Duration::from_secs(11)).await;
    client.check(HealthCheckRequest::default()).await?;

    let plaintext = Caller::open(&CallerFlags { tls_ca: None, ..calling }, false, ("--tls-server-name", None)).await?;
    let (near, far) = tokio::io::duplex(64 * 1024);
    tasks.spawn(serve(Connection::new(far), Arc::clone(&seen)));
    let channel = connect_through(&plaintext, "localhost:1", ("the server", "localhost"), near).await;
    HealthClient::new(channel.map_err(anyhow::Error::msg)?).check(HealthCheckRequest::default()).await?;
    let (near, far) = tokio::io::duplex(64 * 1024);
    tasks.spawn(serve(Connection::new(far), Arc::clone(&seen)));
    let channel = connect_over("localhost:1", near).await.map_err(anyhow::Error::msg)?;
    HealthClient::new(channel).check(HealthCheckRequest::default()).await?;

    let expected = [Some("Bearer first"), Some("Bearer second"), None, None];
    assert_eq!(*seen.lock().unwrap(), expected.map(|token| token.map(str::to_owned)));
    Ok(())
}

/// Serves one connection, and records the token of each request.
async fn serve(connection: Connection, seen: Seen) -> anyhow::Result<()> {
    let note = move |request: Request<()>| {
        let token = request.metadata().get("authorization").map(|token| token.to_str().map(str::to_owned));
        let token = token.transpose().map_err(|_| Status::internal("no text"))?;
        seen.lock().map_err(|_| Status::internal("poisoned"))?.push(token);
        Ok(request)
    };
    let (_, health) = tonic_health::server::health_reporter();
    let incoming = futures::stream::iter([Ok::<_, std::io::Error>(connection)]).chain(futures::stream::pending());
    let layer = tonic::service::InterceptorLayer::new(note);
    Server::builder().layer(layer).add_service(health).serve_with_incoming(incoming).await?;
    Ok(())
}
