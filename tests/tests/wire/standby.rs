//! The answers of a standby, and the ways in which clients distinguish it from the leader.

use super::{led_by_a, reason};
use anyhow::{Context, bail, ensure};
use engine::work::ToLeader;
use proto::admin::v1beta1::admin_service_client::AdminServiceClient;
use proto::admin::v1beta1::{GetStatusRequest, ListExecutorsRequest};
use proto::graph::v1beta1::graph_service_client::GraphServiceClient;
use proto::graph::v1beta1::{GetObjectRequest, ListCoverageRequest};
use proto::r#type::v1beta1::{ObjectRef, ReplicaRole, ResponseMeta};
use std::time::Duration;
use tests::load::{configmap, configmaps, create, until};
use tests::wire::network::{API, Road};
use tests::wire::puppet::{self, Puppet, hello};
use tests::wire::world::{World, address};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tonic::Code;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};
use tonic_types::StatusExt;

const WORK: &str = "ownergraph.work.v1beta1.WorkService";
const GRAPH: &str = "ownergraph.graph.v1beta1.GraphService";
const ADMIN: &str = "ownergraph.admin.v1beta1.AdminService";
const SERVER: &str = "";

async fn with_standby() -> anyhow::Result<World> {
    let mut world = led_by_a().await?;
    world.replica("b");
    world.until_role("b", ReplicaRole::Standby).await?;
    Ok(world)
}

fn seconds(duration: Option<&prost_types::Duration>) -> Option<f64> {
    duration.map(|duration| duration.seconds as f64 + f64::from(duration.nanos) / 1e9)
}

#[tokio::test(start_paused = true)]
async fn a_standby_refuses_work_and_says_where_to_go() -> anyhow::Result<()> {
    let world = with_standby().await?;
    let mut puppet = Puppet::call(&world.network, "e", &address("b")).await?;
    puppet.say(ToLeader::Hello(hello("e", "1", &world.cluster_uid, 4))).await;
    let refusal = puppet.hear().await.err().context("a standby lets an executor in")?;
    ensure!((refusal.code(), reason(&refusal)) == (Code::Unavailable, "NOT_LEADER".into()), "{refusal:?}");
    let details = refusal.get_error_details();
    let info = details.error_info().context("why")?;
    ensure!(info.domain == "ownergraph.dev", "{info:?}");
    ensure!(info.metadata.get("leaderEndpoint").is_some_and(|endpoint| *endpoint == address("a")), "{info:?}");
    ensure!(info.metadata.get("leader").is_some_and(|holder| holder.starts_with("a_")), "{info:?}");
    let wait = details.retry_info().and_then(|retry| retry.retry_delay).context("when to try again")?;
    let pushback = refusal.metadata().get("grpc-retry-pushback-ms").context("the same for gRPC clients")?;
    ensure!(pushback.to_str()?.parse::<u128>()? == wait.as_millis(), "{pushback:?} {wait:?}");
    Ok(())
}

/// Returns the metadata of every kind of read.
async fn reads(world: &World, replica: &str, uid: &str) -> anyhow::Result<Vec<(&'static str, ResponseMeta)>> {
    let (channel, _) = puppet::channel(&world.network, "user", &address(replica)).await?;
    let mut graph = GraphServiceClient::new(channel.clone());
    let mut admin = AdminServiceClient::new(channel);
    let wanted = ObjectRef { uid: uid.to_owned(), ..ObjectRef::default() };
    let object = graph.get_object(GetObjectRequest { r#ref: Some(wanted), ..Default::default() }).await?.into_inner();
    let coverage = graph.list_coverage(ListCoverageRequest::default()).await?.into_inner();
    let status = admin.get_status(GetStatusRequest {}).await?.into_inner();
    let executors = admin.list_executors(ListExecutorsRequest::default()).await?.into_inner();
    let metas = [
        ("GetObject", object.meta),
        ("ListCoverage", coverage.meta),
        ("GetStatus", status.meta),
        ("ListExecutors", executors.meta),
    ];
    metas.into_iter().map(|(call, meta)| Ok((call, meta.context(call)?))).collect()
}

#[tokio::test(start_paused = true)]
async fn reads_say_who_answered_and_how_fresh_the_answer_is() -> anyhow::Result<()> {
    let world = with_standby().await?;
    let object = create(&world.client, &configmaps("default"), &configmap("seen", &[])).await?;
    let uid = object["metadata"]["uid"].as_str().context("a uid")?;
    let ask = || async { Ok(reads(&world, "b", uid).await.is_ok()) };
    until("the standby knows the object", Duration::from_secs(5), ask, |known| *known).await?;
    for (replica, role) in [("a", ReplicaRole::Leader), ("b", ReplicaRole::Standby)] {
        for (call, meta) in reads(&world, replica, uid).await? {
            let told = (meta.replica.as_str(), meta.role(), meta.leader_endpoint.as_str());
            ensure!(told == (replica, role, address("a").as_str()), "{call}: {meta:?}");
            ensure!(meta.term.as_ref().is_some_and(|term| term.number == 1), "{call}: {meta:?}");
            ensure!(meta.cluster_uid == world.cluster_uid && meta.unsynced.is_empty(), "{call}: {meta:?}");
            ensure!(seconds(meta.lag.as_ref()).is_some_and(|lag| lag < 61.0), "{call}: {meta:?}");
        }
    }
    // Bookmarks move the positions of quiet collections.
    tokio::time::sleep(Duration::from_secs(30)).await;
    world.api.send_bookmarks();
    tokio::time::sleep(Duration::from_secs(3)).await;
    let lag = seconds(reads(&world, "b", uid).await?[0].1.lag.as_ref());
    ensure!(lag.is_some_and(|lag| (2.9..3.5).contains(&lag)), "{lag:?} seconds after a bookmark for all");
    // A replica without its API server still answers, and reports the age of its answers.
    world.network.set_road("b", API, Road::Frozen);
    tokio::time::sleep(Duration::from_secs(100)).await;
    let (_, meta) = reads(&world, "b", uid).await?.remove(0);
    let lag = seconds(meta.lag.as_ref());
    ensure!(lag.is_some_and(|lag| (102.9..103.5).contains(&lag)), "{lag:?} seconds, 103 after the last bookmark");
    ensure!(meta.role() == ReplicaRole::Standby, "{meta:?}");
    Ok(())
}

/// The last reported health of one service.
struct Watched {
    service: &'static str,
    changes: tonic::Streaming<HealthCheckResponse>,
}

impl Watched {
    async fn next(&mut self) -> anyhow::Result<ServingStatus> {
        let change = tokio::time::timeout(Duration::from_secs(30), self.changes.message()).await?;
        Ok(change?.with_context(|| format!("the watch of {:?} ended", self.service))?.status())
    }
}

async fn watch(world: &World, replica: &str, service: &'static str) -> anyhow::Result<Watched> {
    let (channel, _) = puppet::channel(&world.network, "user", &address(replica)).await?;
    let request = HealthCheckRequest { service: service.to_owned() };
    let changes = HealthClient::new(channel).watch(request).await?.into_inner();
    Ok(Watched { service, changes })
}

async fn check(world: &World, replica: &str, service: &str) -> anyhow::Result<ServingStatus> {
    let (channel, _) = puppet::channel(&world.network, "user", &address(replica)).await?;
    let request = HealthCheckRequest { service: service.to_owned() };
    Ok(HealthClient::new(channel).check(request).await?.into_inner().status())
}

#[tokio::test(start_paused = true)]
async fn health_tells_the_leader_from_a_standby_and_follows_a_takeover() -> anyhow::Result<()> {
    use ServingStatus::{NotServing, Serving};
    let mut world = with_standby().await?;
    // The health follows the readiness twice a second.
    tokio::time::sleep(Duration::from_secs(1)).await;
    for (replica, service, wanted) in [
        ("a", SERVER, Serving),
        ("a", GRAPH, Serving),
        ("a", ADMIN, Serving),
        ("a", WORK, Serving),
        ("b", SERVER, Serving),
        ("b", GRAPH, Serving),
        ("b", ADMIN, Serving),
        ("b", WORK, NotServing),
    ] {
        let told = check(&world, replica, service).await?;
        ensure!(told == wanted, "{service:?} on {replica}: {told:?}");
    }
    let unknown = check(&world, "a", "no.such.Service").await;
    ensure!(unknown.is_err(), "{unknown:?}");

    let mut watches = [watch(&world, "b", WORK).await?, watch(&world, "b", GRAPH).await?];
    for (watch, wanted) in watches.iter_mut().zip([NotServing, Serving]) {
        let told = watch.next().await?;
        ensure!(told == wanted, "{}: {told:?}", watch.service);
    }
    let leaving = watch(&world, "a", WORK).await?;
    let [mut work, mut graph] = watches;
    let mut leaving = leaving;
    ensure!(leaving.next().await? == Serving, "a leads");
    let stopped = tokio::time::Instant::now();
    tokio::try_join!(world.stop_replica("a"), async {
        ensure!(leaving.next().await? == NotServing, "a has stopped");
        ensure!(work.next().await? == Serving, "b has taken over");
        eprintln!("health of the next leader is pushed {:.2?} after the stop", stopped.elapsed());
        Ok(())
    })?;
    // The requests did not affect the reads.
    let change = tokio::time::timeout(Duration::from_secs(5), graph.next()).await;
    ensure!(change.is_err(), "reads of b: {change:?}");
    Ok(())
}

/// Reads one line and a status from a socket. The clock runs in the meantime.
async fn readyz(listener: std::net::SocketAddr) -> anyhow::Result<(u16, String)> {
    tokio::time::resume();
    let answer = async {
        let mut socket = TcpStream::connect(listener).await?;
        socket.write_all(b"GET /readyz?verbose HTTP/1.1\r\nhost: replica\r\nconnection: close\r\n\r\n").await?;
        let mut answer = String::new();
        socket.read_to_string(&mut answer).await?;
        let status = answer.split(' ').nth(1).context("a status")?.parse()?;
        Ok((status, answer))
    }
    .await;
    tokio::time::pause();
    answer
}

#[tokio::test(start_paused = true)]
async fn readyz_says_ok_on_both_and_which_is_which() -> anyhow::Result<()> {
    let mut world = World::new().await?;
    let mut places = Vec::new();
    for replica in ["a", "b"] {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        places.push(listener.local_addr()?);
        world.replica_with_admin(replica, listener);
        let role = if replica == "a" { ReplicaRole::Leader } else { ReplicaRole::Standby };
        world.until_role(replica, role).await?;
    }
    let [a, b] = places.as_slice() else { bail!("two replicas") };
    let (status, body) = readyz(*a).await?;
    ensure!(status == 200 && body.contains("leadership: this replica leads, term 1"), "{body}");
    let (status, body) = readyz(*b).await?;
    let hint = format!("leads at {}, term 1", address("a"));
    ensure!(status == 200 && body.contains(&hint) && !body.contains("this replica leads"), "{body}");
    world.kill_replica("a");
    world.until_role("b", ReplicaRole::Leader).await?;
    let (status, body) = readyz(*b).await?;
    ensure!(status == 200 && body.contains("leadership: this replica leads, term 2"), "{body}");
    Ok(())
}
