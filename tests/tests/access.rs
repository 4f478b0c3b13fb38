//! Access control on a real API server with RBAC: the graph service uses TokenReview and SubjectAccessReview correctly,
//! and the roles of `docs/access.md` have the effect that the page states.

use anyhow::{Context, ensure};
use engine::leader::{Mode, Policy};
use engine::work::{Hello, Protocols, Term, ToLeader};
use futures::StreamExt as _;
use futures::stream::BoxStream;
use graph_service::{Access, Config, Connection, Edges, Election, ReaderThreads, Reviewed};
use hyper_util::rt::TokioIo;
use kube_api::{Access as Credentials, Cluster, cluster_uid, connect};
use proto::admin::v1beta1::admin_service_client::AdminServiceClient;
use proto::admin::v1beta1::{BypassGateRequest, GetStatusRequest, Guard};
use proto::decision::v1beta1::ListDecisionsRequest;
use proto::decision::v1beta1::decision_service_client::DecisionServiceClient;
use proto::graph::v1beta1::graph_service_client::GraphServiceClient;
use proto::graph::v1beta1::{FindStuckObjectsRequest, GetObjectRequest};
use proto::r#type::v1beta1::consistency::Requirement;
use proto::r#type::v1beta1::{Consistency, ObjectRef};
use proto::work::v1beta1::StreamWorkRequest;
use proto::work::v1beta1::work_service_client::WorkServiceClient;
use runtime::shutdown::Shutdown;
use runtime::tls::Peer;
use std::fs;
use std::path::Path;
use std::time::Duration;
use tests::controlplane::{self, ControlPlane};
use tests::wire::puppet::hello;
use tokio::sync::mpsc;
use tokio::time::{Instant, interval};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};
use tonic_types::StatusExt as _;

const PIPE_BYTES: usize = 64 * 1024;
const KNOWN_WITHIN: Duration = Duration::from_secs(60);

/// The subjects of the roles, and two namespaces. The viewer may see one of them.
const SETTING: &str = r#"
apiVersion: v1
kind: Namespace
metadata: {name: access-shop}
---
apiVersion: v1
kind: Namespace
metadata: {name: access-bank}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: till, namespace: access-shop}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: vault, namespace: access-bank}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: viewer, namespace: access-shop}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: operator, namespace: access-shop}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: executor, namespace: access-shop}
---
apiVersion: v1
kind: Pod
metadata: {name: executor-0, namespace: access-shop}
spec: {serviceAccountName: executor, containers: [{name: executor, image: none}]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: viewer, namespace: access-shop}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: ownergraph-view}
subjects: [{kind: ServiceAccount, name: viewer, namespace: access-shop}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: access-operator}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: ownergraph-operate}
subjects: [{kind: ServiceAccount, name: operator, namespace: access-shop}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: access-executor}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: ownergraph-executor-leases}
subjects: [{kind: ServiceAccount, name: executor, namespace: access-shop}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: access-read-all}
rules: [{apiGroups: ["*"], resources: ["*"], verbs: [get, list, watch]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: access-reader}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: access-read-all}
subjects: [{kind: User, name: reader}]
"#;

/// A gate over nothing.
const GATE: &str = r#"
apiVersion: ownergraph.dev/v1alpha1
kind: Gate
metadata: {name: production}
spec:
  reason: the operator bypasses it
  scope: {targets: [{namespaces: [nowhere]}]}
  stream: {}
  failurePolicy: Deny
  maxHoldSeconds: 60
  afterMaxHold: Deny
"#;

/// The roles in the page.
fn roles() -> anyhow::Result<String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/access.md");
    let page = fs::read_to_string(&page).with_context(|| format!("reading {}", page.display()))?;
    let (_, roles) = page.split_once("```yaml\n").context("the page shows no roles")?;
    let (roles, _) = roles.split_once("```").context("the roles do not end")?;
    Ok(roles.to_owned())
}

fn kubectl(plane: &ControlPlane, arguments: &[&str]) -> anyhow::Result<String> {
    let output = plane.kubectl().args(arguments).output()?;
    ensure!(output.status.success(), "kubectl {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Returns a token as `kubectl create token` does.
fn token(plane: &ControlPlane, account: &str, more: &[&str]) -> anyhow::Result<String> {
    kubectl(plane, &[&["create", "token", account, "-n", "access-shop"], more].concat())
}

const OURS: &[&str] = &["--audience=ownergraph"];

/// A graph service whose callers use pipes that count as TLS, each with a bearer token.
#[derive(Clone)]
struct Dial(mpsc::Sender<Connection>);

impl Dial {
    async fn channel(&self) -> anyhow::Result<Channel> {
        let pipes = self.0.clone();
        let connector = tower::service_fn(move |_: http::Uri| {
            let pipes = pipes.clone();
            async move {
                let (near, far) = tokio::io::duplex(PIPE_BYTES);
                let connection = Connection::new(far).with_peer(Peer::Tls(None));
                pipes.send(connection).await.map_err(std::io::Error::other)?;
                Ok::<_, std::io::Error>(TokioIo::new(near))
            }
        });
        Ok(Endpoint::from_static("http://graph").connect_with_connector(connector).await?)
    }

    async fn get(&self, token: &str, namespace: &str, name: &str) -> anyhow::Result<Result<(), Status>> {
        let (resource, namespace, name) = ("configmaps".to_owned(), namespace.to_owned(), name.to_owned());
        let object = ObjectRef { resource, namespace, name, ..ObjectRef::default() };
        // The longest wait that a service grants, for a busy machine.
        let max_wait = Some(prost_types::Duration { seconds: 10, nanos: 0 });
        let consistency = Some(Consistency { requirement: Some(Requirement::Latest(true)), max_wait });
        let request = by(token, GetObjectRequest { r#ref: Some(object), consistency, ..GetObjectRequest::default() })?;
        Ok(GraphServiceClient::new(self.channel().await?).get_object(request).await.map(|_| ()))
    }

    async fn status(&self, token: &str) -> anyhow::Result<Result<(), Status>> {
        let request = by(token, GetStatusRequest {})?;
        Ok(AdminServiceClient::new(self.channel().await?).get_status(request).await.map(|_| ()))
    }

    async fn bypass(&self, token: &str, gate: &str) -> anyhow::Result<Result<Guard, Status>> {
        let ttl = Some(prost_types::Duration { seconds: 60, nanos: 0 });
        let request = BypassGateRequest { name: format!("gates/{gate}"), ttl, reason: "a test".to_owned() };
        let answer = AdminServiceClient::new(self.channel().await?).bypass_gate(by(token, request)?).await;
        Ok(answer.map(|answer| answer.into_inner().gate.unwrap_or_default()))
    }

    /// Returns the first message to an executor with this name.
    async fn work(&self, token: &str, hello: Hello) -> anyhow::Result<Result<(), Status>> {
        let messages =
            futures::stream::iter([StreamWorkRequest::from(ToLeader::Hello(hello))]).chain(futures::stream::pending());
        let answer = WorkServiceClient::new(self.channel().await?).stream_work(by(token, messages)?).await;
        Ok(match answer {
            Ok(answer) => answer.into_inner().message().await.map(|_| ()),
            Err(status) => Err(status),
        })
    }
}

fn by<M>(token: &str, message: M) -> anyhow::Result<Request<M>> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("authorization", format!("Bearer {token}").parse()?);
    Ok(request)
}

/// Returns code and reason of a refusal.
fn why(answer: Result<(), Status>) -> (Code, String) {
    let Err(status) = answer else { return (Code::Ok, String::new()) };
    let reason = status.get_error_details().error_info().map(|info| info.reason.clone()).unwrap_or_default();
    (status.code(), reason)
}

fn ok() -> (Code, String) {
    (Code::Ok, String::new())
}

fn denied() -> (Code, String) {
    (Code::PermissionDenied, "ACCESS_DENIED".to_owned())
}

async fn cluster_as(plane: &ControlPlane, user: &str) -> anyhow::Result<Cluster> {
    let access = Credentials { kubeconfig: Some(plane.kubeconfig_of(user)?), ..Credentials::default() };
    Ok(connect(&access).await?)
}

/// Runs a graph service with these credentials next to `story`.
async fn with_service(cluster: Cluster, story: impl AsyncFnOnce(Dial) -> anyhow::Result<()>) -> anyhow::Result<()> {
    let (pipes, connections) = mpsc::channel(8);
    let grpc: BoxStream<'static, _> = tokio_stream::wrappers::ReceiverStream::new(connections).map(Ok).boxed();
    let config = Config {
        mode: Mode::Enforce,
        replica: "replica".to_owned(),
        advertise: String::new(),
        ignore: Vec::new(),
        policy: Policy::default(),
        decision_log: None,
        protocols: Protocols::OURS,
        web_origins: Vec::new(),
        traces: None,
        record: None,
        flags: graph_service::Flags::default(),
    };
    let edges = Edges {
        grpc,
        admin: None,
        tls: None,
        registry: prometheus_client::registry::Registry::default(),
        cluster,
        election: Election::Fixed(Term { election: "election".into(), number: 1 }),
        access: Access::Reviewed(Reviewed { audience: "ownergraph".to_owned(), ..Reviewed::default() }),
        readers: ReaderThreads::of_machine(),
        audit: graph_service::AuditSources::default(),
        observer: None,
        progress: false,
    };
    let shutdown = Shutdown::new();
    let serve = Box::pin(graph_service::serve(config, edges, shutdown.clone()));
    let (served, told) = tokio::join!(serve, async {
        let told = Box::pin(story(Dial(pipes))).await;
        shutdown.request();
        told
    });
    told.and(served)
}

/// Repeats a call until it has this answer. Lists take time, and the service caches answers of the API server for a
/// while.
async fn until(
    expected: (Code, String),
    ask: impl AsyncFn() -> anyhow::Result<Result<(), Status>>,
) -> anyhow::Result<()> {
    let deadline = Instant::now() + KNOWN_WITHIN;
    let mut ticks = interval(Duration::from_millis(100));
    loop {
        ticks.tick().await;
        let answer = why(ask().await?);
        if answer == expected {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "{answer:?} instead of {expected:?}");
    }
}

#[tokio::test]
async fn the_api_server_says_who_calls_and_what_they_may() -> anyhow::Result<()> {
    let Some(binaries) = controlplane::require() else { return Ok(()) };
    let plane = &ControlPlane::start(&binaries).await?;
    plane.apply(roles()?.as_bytes())?;
    plane.apply(SETTING.as_bytes())?;
    for guards in ["protections", "budgets", "approvals", "gates"] {
        let definition = format!("../deploy/crds/{guards}.yaml");
        plane.apply(&fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join(definition))?)?;
        kubectl(plane, &["wait", "--for=condition=Established", &format!("crd/{guards}.ownergraph.dev")])?;
    }
    plane.apply(GATE.as_bytes())?;
    let cluster = cluster_as(plane, controlplane::ADMIN).await?;
    let uid = cluster_uid(&cluster.client).await?;
    let viewer = token(plane, "viewer", OURS)?;
    let bound = [OURS, &["--bound-object-kind=Pod", "--bound-object-name=executor-0"]].concat();
    let (executor, operator) = (token(plane, "executor", &bound)?, token(plane, "operator", OURS)?);
    with_service(cluster, async |dial| {
        until(ok(), async || dial.get(&viewer, "access-shop", "till").await).await?;
        ensure!(why(dial.get(&viewer, "access-shop", "nothing").await?).0 == Code::NotFound);
        ensure!(why(dial.get(&viewer, "access-bank", "vault").await?) == denied());
        ensure!(why(dial.get(&viewer, "access-bank", "nothing").await?) == denied());
        ensure!(why(dial.status(&viewer).await?) == denied());
        let stuck = by(&viewer, FindStuckObjectsRequest::default())?;
        let stuck = GraphServiceClient::new(dial.channel().await?).find_stuck_objects(stuck).await.map(|_| ());
        ensure!(why(stuck) == denied());
        let decisions = by(&viewer, ListDecisionsRequest::default())?;
        let decisions = DecisionServiceClient::new(dial.channel().await?).list_decisions(decisions).await.map(|_| ());
        ensure!(why(decisions) == denied());

        ensure!(why(dial.bypass(&viewer, "production").await?.map(drop)) == denied());
        ensure!(why(dial.bypass(&viewer, "nothing").await?.map(drop)) == denied());
        let absent = (Code::NotFound, "GATE_NOT_FOUND".to_owned());
        ensure!(why(dial.bypass(&operator, "nothing").await?.map(drop)) == absent);
        let told = dial.bypass(&operator, "production").await?.context("the operator may bypass gates")?;
        let bypass = told.gate.and_then(|gate| gate.bypass).context("the answer has no bypass")?;
        let by = kubectl(plane, &["get", "gates.ownergraph.dev", "production", "-o", "jsonpath={.spec.bypass.by}"])?;
        ensure!(by == "system:serviceaccount:access-shop:operator" && bypass.actor == by, "{by}: {bypass:?}");

        // The requests that the commands and the console send to the API server itself.
        for (verb, resource) in [
            ("create", "protections"),
            ("delete", "protections"),
            ("create", "budgets"),
            ("patch", "budgets"),
            ("create", "approvals"),
            ("patch", "approvals"),
            ("create", "gates"),
        ] {
            let resource = format!("{resource}.ownergraph.dev");
            kubectl(plane, &["auth", "can-i", verb, &resource, &format!("--as={by}")])?;
        }
        ensure!(why(dial.status(&operator).await?) == ok());
        ensure!(why(dial.get(&operator, "access-shop", "till").await?) == denied());

        ensure!(why(dial.work(&executor, hello("executor-0", "first", &uid, 4)).await?) == ok());
        let mismatch = (Code::PermissionDenied, "EXECUTOR_MISMATCH".to_owned());
        ensure!(why(dial.work(&executor, hello("executor-1", "first", &uid, 4)).await?) == mismatch);
        let unbound = token(plane, "executor", OURS)?;
        ensure!(why(dial.work(&unbound, hello("executor-0", "first", &uid, 4)).await?) == mismatch);
        ensure!(why(dial.work(&viewer, hello("viewer", "first", &uid, 4)).await?) == denied());

        let unauthenticated = |reason: &str| (Code::Unauthenticated, reason.to_owned());
        let elsewhere = token(plane, "viewer", &["--audience=elsewhere"])?;
        let refused = dial.get(&elsewhere, "access-shop", "till").await?;
        ensure!(why(refused) == unauthenticated("TOKEN_FOR_OTHER_AUDIENCE"));
        let usual = token(plane, "viewer", &[])?;
        ensure!(why(dial.get(&usual, "access-shop", "till").await?) == unauthenticated("TOKEN_FOR_OTHER_AUDIENCE"));
        // The API server accepts this token, because it demands no audience.
        ensure!(why(dial.get(plane.token(), "access-shop", "till").await?) == unauthenticated("CREDENTIALS_INVALID"));
        ensure!(why(dial.get("guess", "access-shop", "till").await?) == unauthenticated("CREDENTIALS_INVALID"));

        // The test takes away a right, and then an account.
        kubectl(plane, &["delete", "rolebinding", "viewer", "-n", "access-shop"])?;
        until(denied(), async || dial.get(&viewer, "access-shop", "till").await).await?;
        kubectl(plane, &["delete", "serviceaccount", "viewer", "-n", "access-shop"])?;
        until(unauthenticated("CREDENTIALS_INVALID"), async || dial.get(&viewer, "access-shop", "till").await).await
    })
    .await?;

    // A graph service that may read everything but may not review callers refuses every caller.
    with_service(cluster_as(plane, "reader").await?, async |dial| {
        let refused = dial.status(&operator).await?.err().context("it is let in")?;
        let words = refused.message().to_owned();
        ensure!(why(Err(refused)) == (Code::Unavailable, "REVIEW_UNAVAILABLE".to_owned()));
        ensure!(words.contains("403") && words.contains("tokenreviews"), "{words}");
        Ok(())
    })
    .await
}
