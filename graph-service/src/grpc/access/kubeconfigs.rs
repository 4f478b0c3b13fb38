//! The parts that let a kubeconfig be enough for a call: the authority of this service, published for callers, and the
//! cluster's authority of client certificates, read for the handshake. docs/design/service.md has the reasons.

use super::{Access, Reviewed};
use http::{Method, StatusCode};
use kube_api::{Cluster, call, media, request};
use runtime::tasks::Tasks;
use runtime::tls::ServerTls;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncReadExt as _;
use tokio::time::{Instant, MissedTickBehavior, interval};

/// The ConfigMap that callers read.
const PUBLISHED: &str = "/api/v1/namespaces/kube-public/configmaps/ownergraph";
const PUBLISHED_KEY: &str = "ca.crt";
/// The ConfigMap in which the API server publishes whom it trusts.
const CLUSTER: &str = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
const CLUSTER_KEY: &str = "client-ca-file";

const LOOK_EVERY: Duration = Duration::from_secs(30);
/// Interval of writes of an unchanged authority. They restore a ConfigMap that was deleted and installed again.
const WRITE_EVERY: Duration = Duration::from_secs(600);
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
const ANSWER_MAX_BYTES: usize = 4 * 1024 * 1024;
/// Maximum size of the file. A ConfigMap holds a mebibyte.
const AUTHORITIES_MAX_BYTES: u64 = 512 * 1024;

const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
const END: &str = "-----END CERTIFICATE-----";

/// Starts what `access` needs.
pub(crate) fn keep(access: &Access, cluster: &Cluster, tls: Option<&Arc<ServerTls>>, tasks: &mut Tasks) {
    let (Access::Reviewed(Reviewed { publish_ca, cluster_client_ca, .. }), Some(tls)) = (access, tls) else { return };
    if let Some(file) = publish_ca.clone() {
        tasks.spawn_until_end("publisher of the authority", publish(cluster.client.clone(), file));
    }
    if *cluster_client_ca {
        tasks.spawn_until_end("client authority of the cluster", follow(cluster.client.clone(), Arc::clone(tls)));
    }
}

/// Writes the authorities of the file into the published ConfigMap. Never ends.
async fn publish(client: kube::Client, file: PathBuf) -> anyhow::Result<()> {
    let mut looks = every(LOOK_EVERY);
    let (mut written, mut trouble) = (None, Trouble::default());
    loop {
        looks.tick().await;
        let due = async {
            let authorities = authorities(&file).await?;
            if written
                .as_ref()
                .is_some_and(|(known, at): &(String, Instant)| *known == authorities && at.elapsed() < WRITE_EVERY)
            {
                return Ok(None);
            }
            let body = json!({ "data": { PUBLISHED_KEY: authorities } });
            match send(&client, Method::PATCH, PUBLISHED, &body).await? {
                (StatusCode::OK, _) => Ok(Some((authorities, Instant::now()))),
                (status, answer) => Err(refusal("a write of", PUBLISHED, status, &answer)),
            }
        };
        match due.await {
            Ok(now) => {
                written = now.or(written);
                trouble = Trouble::default();
            }
            Err(why) if trouble.is_new(&why) => {
                tracing::warn!(why, "cannot publish the certificate authority; callers need --tls-ca");
            }
            Err(_) => {}
        }
    }
}

async fn authorities(file: &Path) -> Result<String, String> {
    let shown = file.display();
    let mut text = String::new();
    let read = async {
        let file = tokio::fs::File::open(file).await?;
        file.take(AUTHORITIES_MAX_BYTES + 1).read_to_string(&mut text).await
    };
    if read.await.map_err(|error| format!("{shown} cannot be read: {error}"))? as u64 > AUTHORITIES_MAX_BYTES {
        return Err(format!("{shown} has more than {AUTHORITIES_MAX_BYTES} bytes"));
    }
    Some(certificates(&text)).filter(|found| !found.is_empty()).ok_or_else(|| format!("{shown} has no certificate"))
}

/// The certificates of a PEM file, without anything else: a key that is there by mistake is never published.
fn certificates(text: &str) -> String {
    // The first part stands before the first certificate.
    let blocks = text.split(BEGIN).skip(1).filter_map(|rest| rest.split_once(END));
    blocks.map(|(body, _)| format!("{BEGIN}{body}{END}\n")).collect()
}

/// Keeps the handshake's trust equal to the cluster's client authority. Never ends.
async fn follow(client: kube::Client, tls: Arc<ServerTls>) -> anyhow::Result<()> {
    let mut looks = every(LOOK_EVERY);
    let mut trouble = Trouble::default();
    loop {
        looks.tick().await;
        let known = client_ca(&client).await.and_then(|known| {
            let is_there = known.is_some();
            tls.trust_also(known.map(String::into_bytes)).map_err(|error| error.to_string())?;
            // Without an authority, no certificate of the cluster is trusted.
            if is_there { Ok(()) } else { Err(format!("{CLUSTER} has no {CLUSTER_KEY}")) }
        });
        match known {
            Ok(()) => trouble = Trouble::default(),
            Err(why) if trouble.is_new(&why) => {
                tracing::warn!(
                    why,
                    "cannot load the client CA of the cluster; this replica may refuse client certificates of the cluster"
                );
            }
            Err(_) => {}
        }
    }
}

/// `None` if the API server trusts no client certificates.
async fn client_ca(client: &kube::Client) -> Result<Option<String>, String> {
    match send(client, Method::GET, CLUSTER, &Value::Null).await? {
        (StatusCode::OK, answer) => Ok(answer["data"][CLUSTER_KEY].as_str().map(str::to_owned)),
        (StatusCode::NOT_FOUND, _) => Ok(None),
        (status, answer) => Err(refusal("a read of", CLUSTER, status, &answer)),
    }
}

async fn send(client: &kube::Client, method: Method, path: &str, body: &Value) -> Result<(StatusCode, Value), String> {
    let request = request(method, path, media::JSON, body).map_err(|error| error.to_string())?;
    let answer = call(client, request, ANSWER_MAX_BYTES, ANSWER_WITHIN).await.map_err(|error| error.to_string())?;
    Ok((answer.status, serde_json::from_slice(&answer.body).unwrap_or(Value::Null)))
}

fn refusal(what: &str, path: &str, status: StatusCode, answer: &Value) -> String {
    let message = engine::object::clip(answer["message"].as_str().unwrap_or_default(), 300);
    format!("the API server answers {} to {what} {path}: {message}", status.as_u16())
}

fn every(period: Duration) -> tokio::time::Interval {
    let mut ticks = interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

/// The last reason that was logged. An equal one is not logged again.
#[derive(Default)]
struct Trouble(String);

impl Trouble {
    fn is_new(&mut self, why: &str) -> bool {
        let is_new = self.0 != why;
        why.clone_into(&mut self.0);
        is_new
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{Request, Response};
    use http_body_util::BodyExt as _;
    use kube::client::Body;
    use std::sync::{Mutex, PoisonError};
    use tokio::time::sleep;

    /// An API server that writes down the authorities that it gets.
    fn writes() -> (kube::Client, Arc<Mutex<Vec<String>>>) {
        let writes: Arc<Mutex<Vec<String>>> = Arc::default();
        let noted = Arc::clone(&writes);
        let service = tower::service_fn(move |request: Request<Body>| {
            let noted = Arc::clone(&noted);
            async move {
                assert_eq!((request.method(), request.uri().path()), (&Method::PATCH, PUBLISHED));
                assert_eq!(request.headers()["content-type"], media::MERGE_PATCH);
                let patch: Value = serde_json::from_slice(&request.into_body().collect().await?.to_bytes()).unwrap();
                let written = patch["data"][PUBLISHED_KEY].as_str().unwrap().to_owned();
                assert_eq!(patch, json!({ "data": { PUBLISHED_KEY: &written } }));
                noted.lock().unwrap_or_else(PoisonError::into_inner).push(written);
                Ok::<_, kube::Error>(Response::new(Body::from(b"{}".to_vec())))
            }
        });
        (kube::Client::new(service, "default"), writes)
    }

    #[tokio::test(start_paused = true)]
    async fn an_authority_is_written_when_its_file_changes_and_every_ten_minutes() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("ca.crt");
        let of = |body: &str| format!("{BEGIN}\n{body}\n{END}\n");
        std::fs::write(&file, of("AAAA")).unwrap();
        let (client, writes) = writes();
        let mut tasks = Tasks::new();
        tasks.spawn_until_end("publisher", publish(client, file.clone()));
        let mut written = vec![of("AAAA")];
        let large = of(&"A".repeat(AUTHORITIES_MAX_BYTES as usize));
        for (text, after, adds) in [
            (of("AAAA"), LOOK_EVERY, None),
            (of("BBBB"), LOOK_EVERY, Some(of("BBBB"))),
            // A file that is of no use changes nothing.
            (String::new(), LOOK_EVERY, None),
            (large, LOOK_EVERY, None),
            (of("BBBB"), WRITE_EVERY, Some(of("BBBB"))),
        ] {
            std::fs::write(&file, &text).unwrap();
            sleep(after + Duration::from_secs(1)).await;
            written.extend(adds);
            assert_eq!(*writes.lock().unwrap(), written);
        }
    }

    #[test]
    fn nothing_but_certificates_is_published() {
        let one = format!("{BEGIN}\nAAAA\n{END}\n");
        let key = "-----BEGIN PRIVATE KEY-----\nBBBB\n-----END PRIVATE KEY-----\n";
        for (text, published) in [
            (one.clone(), one.clone()),
            (format!("# a comment\n{one}{key}{one}"), format!("{one}{one}")),
            (format!("{key}{one}"), one),
            (key.to_owned(), String::new()),
            (format!("{BEGIN}\nAAAA\n"), String::new()),
            (String::new(), String::new()),
        ] {
            assert_eq!(certificates(&text), published, "{text}");
        }
    }
}
