//! A console for other users, such as one in a cluster. It has no credentials: each request carries the token of its
//! user.

use super::backend::Backend;
use super::door::Door;
use super::server::{self, Site};
use super::session;
use crate::kubectl::ending::{Problem, note};
use crate::kubectl::flags::{Connection, Others};
use anyhow::Context as _;
use executor_service::is_loopback;
use http::{Method, Request};
use kube_api::{Cluster, call};
use runtime::listen;
use runtime::tls::{ServerFlags, ServerTls};
use std::sync::{Arc, PoisonError};

const ANSWER_MAX_BYTES: usize = 64 << 10;

/// Serves at an address. Ends only with an error.
pub(super) async fn serve(
    cluster: Cluster,
    connection: Connection,
    (address, flags): (&str, &Others),
    writes: bool,
) -> Result<(), Problem> {
    let is_private = connection.tls.is_tls(&connection.server) || connection.server.iter().all(|to| is_loopback(to));
    if !is_private {
        return Err(Problem::sentence(
            "--listen needs TLS to the graph service, or loopback: other machines could read the tokens; set --tls-ca",
        ));
    }
    let served = ServerFlags { tls_cert: flags.serve_cert.clone(), tls_key: flags.serve_key.clone(), client_ca: None };
    let tls = ServerTls::open(&served).await.map_err(|why| Problem::sentence(format!("--serve-cert: {why}")))?;
    if tls.is_none() && !flags.serve_plaintext && !is_loopback(address) {
        return Err(Problem::sentence(format!(
            "--listen {address} is not a loopback address, and other machines could read the tokens: set --serve-cert and --serve-key, or allow it behind a proxy with --serve-plaintext"
        )));
    }
    without_credentials(&cluster, &connection).await?;
    let backend = Backend::new(session(cluster, connection, None)?, writes);
    let listener = listen::bind("--listen", address).await.map_err(anyhow::Error::from)?;
    let at = listener.local_addr().context("the socket has no address")?;
    let door = Door::public(&flags.public_url);
    note(&format!("the console listens at {at}, for {}", door.link(None)));
    let site = Site::new(door, backend);
    match tls {
        None => server::serve(listener, site, None).await?,
        Some(tls) => tokio::select! {
            ended = Arc::clone(&tls).follow() => ended?,
            ended = server::serve(listener, site, Some(tls)) => ended?,
        },
    }
    Ok(())
}

/// Refuses credentials for the API server. They would take the place of those of the users.
pub(super) async fn without_credentials(cluster: &Cluster, connection: &Connection) -> Result<(), Problem> {
    let request = Request::builder().method(Method::GET).uri("/version").body(Vec::new());
    let request = request.context("the path of the version is not valid")?;
    // The request shows the credentials that the client has. Its answer does not matter: the API server may be away.
    let _answer = call(&cluster.client, request, ANSWER_MAX_BYTES, connection.request_timeout).await;
    let shown = &cluster.shown;
    let has_token = shown.authorization().lock().unwrap_or_else(PoisonError::into_inner).is_some();
    if has_token || shown.certificate().is_some() || shown.impersonates() {
        return Err(Problem::sentence(format!(
            "context {:?} has credentials, and each user of the page would have its rights: give a kubeconfig whose context has no user",
            cluster.name
        )));
    }
    Ok(())
}
