//! The client of the API server. At a high verbosity it prints each request.

use super::columns::now;
use super::ending::{Problem, note};
use super::flags::Connection;
use super::snapshot::{Snapshot, server};
use http::Request;
use kube::Client;
use kube::client::Body;
use kube_api::{Answer, Cluster};
use runtime::visible::line;
use std::io::{self, Write as _};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The verbosity from which requests are printed, as in kubectl.
const SAID_FROM: u8 = 6;

/// Finds the credentials, or reads the snapshot that replaces a cluster. Sends nothing yet.
pub(super) async fn connect(connection: &Connection) -> Result<Cluster, Problem> {
    let cluster = match &connection.from_file {
        Some(path) => {
            let snapshot = Snapshot::read(path)?;
            note(&snapshot.header.told(now()));
            server::cluster(snapshot, path.display().to_string())
        }
        None => {
            let found = kube_api::connect(&connection.access()).await;
            found.map_err(|error| Problem::sentence(error.to_string()))?
        }
    };
    Ok(if connection.verbosity < SAID_FROM { cluster } else { said(cluster) })
}

/// The time of the API server since 1970, or of this machine if the answer has none.
pub(super) fn date(answer: &Answer) -> Duration {
    let date = answer.date.as_deref().and_then(|date| httpdate::parse_http_date(date).ok());
    date.unwrap_or_else(SystemTime::now).duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// The same cluster, with a line on stderr for each answer: the request, the result, and the time until the head of the
/// answer.
fn said(cluster: Cluster) -> Cluster {
    let namespace = cluster.client.default_namespace().to_owned();
    let (asked, server) = (cluster.client.clone(), cluster.url.clone());
    let service = tower::service_fn(move |request: Request<Body>| {
        let (client, server) = (asked.clone(), server.clone());
        async move {
            let what = format!("{} {}{}", request.method(), server.trim_end_matches('/'), request.uri());
            let began = Instant::now();
            let answer = client.send(request).await;
            let end = answer.as_ref().map_or_else(|error| error.to_string(), |answer| answer.status().to_string());
            // If stderr cannot be written, the line is lost.
            let _closed = writeln!(
                io::stderr(),
                "{} in {} milliseconds",
                line(&format!("{what} {end}")),
                began.elapsed().as_millis()
            );
            answer
        }
    });
    cluster.through(Client::new(service, namespace))
}
