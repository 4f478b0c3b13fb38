//! The connection to the graph service: an address, a forwarded port of the leader that the service publishes or of a
//! pod that is found by label, the address of `collect` on this machine, or a graph that this process lists itself.

use super::direct::{self, Direct};
use super::ending::{Problem, note};
use super::flags::Connection;
use super::session::Session;
use crate::failure::{Failure, sentence};
use crate::remote::{self, LOCAL, MESSAGE_MAX_BYTES, NAME_FLAG, Remote};
use anyhow::{Context as _, anyhow};
use executor_service::{Channel, connect_through};
use http::HeaderValue;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{ApiResource, ListParams, Object};
use kube_api::{Cluster, ClusterUidError, cluster_uid};
use proto::admin::v1beta1::GetStatusRequest;
use proto::admin::v1beta1::admin_service_client::AdminServiceClient;
use proto::decision::v1beta1::decision_service_client::DecisionServiceClient;
use proto::graph::v1beta1::graph_service_client::GraphServiceClient;
use proto::r#type::v1beta1::{ReplicaRole, ResponseMeta};
use published::{Published, Unpublished};
use runtime::cause::innermost;
use runtime::tls::{Caller, CallerFlags, Held};
use serde::Deserialize;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;
use tokio::time::timeout;

mod published;
mod role;

pub(super) use role::leader;

/// The label selector for pods of the graph service.
const SELECTOR: &str = "app.kubernetes.io/name=ownergraph,app.kubernetes.io/component=graph-service";
/// The name of the container port. The number is used if no port has the name.
const PORT_NAME: &str = "grpc";
const PORT: u16 = LOCAL.port();
/// The Service for reads, as in deploy/chart. The certificates of its pods have this host.
const SERVICE: &str = "graph-service";
/// Maximum time until a forwarded port carries data.
const FORWARD_WITHIN: Duration = Duration::from_secs(10);

/// The replicas that may answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// Any replica, or a graph listed by this process.
    Graph,
    /// The leader if it can be reached, because only the leader knows the waits between items; else any replica, or a
    /// graph listed by this process.
    Verdict,
    /// The leader if it can be reached, else any replica, but no graph listed by this process: another answer would
    /// take the place of an earlier one.
    Replica,
    /// Any replica, but no graph listed by this process: the user acts on the answer.
    Service,
    /// Only the leader.
    Leader,
}

/// A connection to a replica or to a graph of this process. All give the same answers.
#[derive(Clone, Debug)]
pub(super) struct Service {
    pub(super) graph: GraphServiceClient<Channel>,
    pub(super) admin: AdminServiceClient<Channel>,
    pub(super) decisions: DecisionServiceClient<Channel>,
    /// The connection that the clients share.
    pub(super) channel: Channel,
    /// Where it leads, for messages.
    pub(super) address: String,
    pub(super) within: Duration,
    /// The graph service of this process, if it runs one.
    direct: Option<Arc<Direct>>,
}

impl Service {
    pub(super) async fn connect(session: &mut Session, need: Need) -> Result<Service, Problem> {
        let way = Way::new(session.connection.clone(), Ok(session.cluster.clone()));
        let here = if way.connection.direct { Some("--direct") } else { None };
        if let Some(flag) = here.or(session.is_file().then_some("--from-file")) {
            if matches!(need, Need::Replica | Need::Service | Need::Leader) {
                return Err(Problem::sentence(format!("{flag} only reads; this command needs a graph service")));
            }
            return Service::here(session).await;
        }
        let found = match Box::pin(way.any()).await {
            Ok(channel) => Box::pin(way.choose(session, channel, need)).await,
            Err(failure @ Failure::Usage(_)) => return Err(failure.into()),
            Err(failure) if way.is_given() => return Err(failure.into()),
            Err(Failure::Refused(why) | Failure::TimedOut(why)) => Err(Problem::sentence(why)),
            Err(Failure::Other(error)) => Err(Problem::Other(error)),
        };
        match (found, need) {
            (Ok(channel), _) => {
                let address = way.reached.into_inner().unwrap_or_else(PoisonError::into_inner);
                Ok(Service::over(channel, address, session, None))
            }
            (Err(problem), _) if way.is_given() => Err(problem),
            (Err(problem), Need::Replica | Need::Service | Need::Leader) => Err(problem),
            (Err(problem), Need::Graph | Need::Verdict) => {
                if let Problem::Other(error) = problem
                    && !error.is::<NotThere>()
                {
                    session.note(&sentence(&error));
                }
                Service::here(session).await
            }
        }
    }

    /// A replica at the addresses of --server, or the leader at an address that a replica named. The connection has no
    /// credentials of a caller, and nothing is asked.
    pub(super) async fn named(session: &Session, leader: Option<&str>) -> Result<Service, Problem> {
        let way = Way::new(session.connection.clone(), Ok(session.cluster.clone()));
        let known = match leader {
            Some(leader) => way.at(leader).await,
            None => None,
        };
        let channel = match known {
            Some(channel) => channel,
            None => way.any().await?,
        };
        let address = way.reached.into_inner().unwrap_or_else(PoisonError::into_inner);
        Ok(Service::over(channel, address, session, None))
    }

    /// The same connection with this `authorization` header on each call.
    pub(super) fn authorized(self, header: HeaderValue) -> Service {
        Service::clients(self.channel.authorized(header), self.address, self.within, self.direct)
    }

    async fn here(session: &mut Session) -> Result<Service, Problem> {
        let (channel, direct) = direct::start(session).await?;
        Ok(Service::over(channel, "this process".to_owned(), session, Some(Arc::new(direct))))
    }

    /// Whether the graph is one of this process, which only reads.
    pub(super) fn is_direct(&self) -> bool {
        self.direct.is_some()
    }

    fn over(channel: Channel, address: String, session: &Session, direct: Option<Arc<Direct>>) -> Service {
        Service::clients(channel, address, session.connection.request_timeout, direct)
    }

    fn clients(channel: Channel, address: String, within: Duration, direct: Option<Arc<Direct>>) -> Service {
        Service {
            graph: GraphServiceClient::new(channel.clone()).max_decoding_message_size(MESSAGE_MAX_BYTES),
            admin: AdminServiceClient::new(channel.clone()).max_decoding_message_size(MESSAGE_MAX_BYTES),
            decisions: DecisionServiceClient::new(channel.clone()).max_decoding_message_size(MESSAGE_MAX_BYTES),
            within,
            channel,
            address,
            direct,
        }
    }
}

/// Neither a pod of the graph service nor a service of this cluster on this machine was found.
#[derive(Debug, thiserror::Error)]
#[error("no ownergraph service in context {0:?}, neither in its pods nor at {LOCAL}: set --server")]
struct NotThere(String);

type Known = Result<Arc<Published>, Unpublished>;

/// The connection: to an address if one is given, else through the API server, else to this machine.
#[derive(Debug)]
pub(super) struct Way {
    connection: Connection,
    /// The cluster of the query, or the reason why none is known.
    cluster: Result<Cluster, String>,
    /// The data that the graph service published at the last search for it. `None` before the first search.
    published: Mutex<Option<Known>>,
    /// Set once the holder of the Lease has been connected: it need not be asked whether it leads.
    leader: OnceLock<()>,
    /// Set once the service of this machine has been chosen. Other replicas are then called by their addresses.
    local: OnceLock<()>,
    /// The last address or pod that answered, for messages.
    reached: Mutex<String>,
}

impl Way {
    pub(super) fn new(connection: Connection, cluster: Result<Cluster, String>) -> Way {
        let (published, reached) = (Mutex::default(), Mutex::default());
        Way { connection, cluster, published, leader: OnceLock::new(), local: OnceLock::new(), reached }
    }

    /// The result of the first call on a connection of [`Way::any`].
    pub(super) fn first<T>(&self, answer: Result<T, Failure>) -> Result<T, Failure> {
        remote::first(&self.reached.lock().unwrap_or_else(PoisonError::into_inner), answer)
    }

    /// Keeps where a channel leads.
    fn reached(&self, place: String, channel: Channel) -> Channel {
        *self.reached.lock().unwrap_or_else(PoisonError::into_inner) = place;
        channel
    }

    fn is_given(&self) -> bool {
        self.connection.is_named()
    }

    fn cluster(&self) -> anyhow::Result<&Cluster> {
        let unknown = |why: &String| {
            anyhow!("no graph service answers at {LOCAL}, and the cluster cannot be searched for one: {why}")
        };
        self.cluster.as_ref().map_err(unknown)
    }

    fn remote(&self) -> Remote {
        let Connection { insecure, tls, server_name, .. } = self.connection.clone();
        let mut server: Vec<String> = self.connection.servers().cloned().collect();
        if server.is_empty() {
            server.push(LOCAL.to_string());
        }
        Remote { server, insecure, tls, server_name }
    }

    /// The replica that was found, or the leader. An address may belong to the graph service of another cluster, whose
    /// objects of the same names are other objects. So the cluster is compared.
    async fn choose(&self, session: &Session, channel: Channel, need: Need) -> Result<Channel, Problem> {
        if (need == Need::Graph && !self.is_given()) || self.leader.get().is_some() {
            return Ok(channel);
        }
        let meta = role::of(channel.clone(), session.searched());
        let (meta, ours) = tokio::join!(meta, async {
            if self.is_given() { cluster_uid(&session.cluster.client).await.ok() } else { None }
        });
        let meta = self.first(meta)?;
        if let Some(ours) = ours.filter(|ours| !meta.cluster_uid.is_empty() && *ours != meta.cluster_uid) {
            let (server, name) = (self.connection.server.join(","), &session.cluster.name);
            return Err(Problem::Refused(format!(
                "the graph service at {server} watches cluster {}, but context {name:?} is cluster {ours}: choose the right context with --context",
                meta.cluster_uid
            )));
        }
        if matches!(need, Need::Graph | Need::Service) || meta.role() == ReplicaRole::Leader {
            return Ok(channel);
        }
        if let Some(leader) = self.at(&meta.leader_endpoint).await {
            return Ok(leader);
        }
        let leader = match meta.leader_endpoint.as_str() {
            "" => "no leader is known at the moment".to_owned(),
            endpoint => format!("the leader at {endpoint} cannot be reached from here"),
        };
        if need == Need::Leader {
            return Err(Problem::sentence(format!(
                "{leader}; only the leader can answer this query; retry when ownergraph status shows a leader"
            )));
        }
        session.note(&format!("{leader}; {} answers instead, and does not know which decisions wait", meta.replica));
        Ok(channel)
    }

    async fn meta(&self, channel: Channel) -> Result<ResponseMeta, Problem> {
        let status = remote::within(AdminServiceClient::new(channel).get_status(GetStatusRequest {})).await?;
        Ok(status.meta.unwrap_or_default())
    }

    /// Reads what the graph service publishes. With --port-forward-namespace, only of a service in that namespace.
    async fn publications(&self) -> anyhow::Result<Known> {
        let read = Published::read(&self.cluster()?.client, self.connection.request_timeout).await;
        let known = read.and_then(|known| known.within(self.connection.port_forward_namespace.as_deref()));
        let known = known.map(Arc::new);
        *self.published.lock().unwrap_or_else(PoisonError::into_inner) = Some(known.clone());
        Ok(known)
    }

    /// Returns the result of the last read of [`Way::publications`].
    fn published(&self) -> Option<Arc<Published>> {
        self.published.lock().unwrap_or_else(PoisonError::into_inner).clone()?.ok()
    }

    /// The leader that is published, or a ready replica beside it.
    async fn any_published(&self, published: &Published) -> Result<Channel, Failure> {
        self.held(published)?;
        let why = match published.leader(&self.cluster()?.client, self.connection.request_timeout).await {
            Ok(place) => match self.forward(&place).await {
                Ok(channel) => {
                    let _set_before = self.leader.set(());
                    return Ok(channel);
                }
                Err(Failure::Other(error)) => sentence(&error),
                Err(failure @ (Failure::Usage(_) | Failure::Refused(_) | Failure::TimedOut(_))) => return Err(failure),
            },
            Err(why) => why,
        };
        // An error of the list adds nothing: the leader is what was wanted.
        let pods = self.pods().await.unwrap_or_default();
        let first = pods.first().ok_or_else(|| anyhow!(why.clone()))?;
        note_once(format!("{why}; pod {}/{} is asked instead", first.namespace, first.name));
        self.forward(first).await
    }

    /// The credentials of the kubeconfig for the service, if no flag gives others.
    fn held(&self, published: &Published) -> anyhow::Result<Held> {
        let tls = &self.connection.tls;
        let is_own = tls.token_file.is_none() && tls.tls_cert.is_none();
        published.held(&self.cluster()?.shown, is_own, tls.tls_ca.is_some()).map_err(anyhow::Error::msg)
    }

    /// Ready pods of the graph service.
    async fn pods(&self) -> anyhow::Result<Vec<Place>> {
        let client = self.cluster()?.client.clone();
        let published = self.published();
        let published = published.as_ref().map(|published| &published.namespace);
        let resource = ApiResource::erase::<Pod>(&());
        let pods: Api<Listed> = match self.connection.port_forward_namespace.as_ref().or(published) {
            Some(namespace) => Api::namespaced_with(client, namespace, &resource),
            None => Api::all_with(client, &resource),
        };
        let labelled = ListParams::default().labels(SELECTOR);
        let listed = timeout(self.connection.request_timeout, pods.list(&labelled)).await;
        let listed = listed.map_err(|_| anyhow!("the list of the graph service's pods did not end in time"))?;
        let listed =
            listed.map_err(|error| anyhow!("the graph service's pods cannot be listed: {}", innermost(&error)))?;
        Ok(listed.items.iter().filter(|pod| is_ready(pod)).filter_map(Place::of).collect())
    }

    /// The service of this machine, unless it is known to belong to another cluster.
    async fn local(&self) -> Result<Option<Channel>, Failure> {
        let Connection { tls, port_forward_namespace, .. } = &self.connection;
        // A token is sent only to the service that the user named, and not to any process that listens here.
        let is_meant = tls.token_file.is_none() || tls.tls_ca.is_some();
        if port_forward_namespace.is_some() || !is_meant {
            return Ok(None);
        }
        let channel = match self.remote().any().await {
            Ok(channel) => channel,
            Err(failure @ Failure::Usage(_)) => return Err(failure),
            Err(Failure::Refused(_) | Failure::TimedOut(_) | Failure::Other(_)) => return Ok(None),
        };
        if let Ok(Cluster { client, name, .. }) = &self.cluster {
            let (meta, ours) = tokio::join!(self.meta(channel.clone()), cluster_uid(client));
            let Ok(meta) = meta else { return Ok(None) };
            match ours {
                Ok(ours) if ours != meta.cluster_uid => {
                    note(&format!("the graph service at {LOCAL} watches another cluster than context {name:?}"));
                    return Ok(None);
                }
                Ok(_) => {}
                // A caller with few rights lists the cluster instead: this service may belong to another one.
                Err(ClusterUidError::Refused { .. }) => return Ok(None),
                Err(why) => note(&format!("it is not known whether {LOCAL} belongs to context {name:?}: {why}")),
            }
        }
        let _set_before = self.local.set(());
        Ok(Some(self.reached(LOCAL.to_string(), channel)))
    }

    /// A channel to a pod, through the API server.
    async fn forward(&self, place: &Place) -> Result<Channel, Failure> {
        let Connection { tls, server_name, .. } = &self.connection;
        let name = (NAME_FLAG, server_name.as_deref());
        let published = self.published();
        // A service that publishes its name is called over TLS, as one at an https:// address.
        let (held, addresses) = match &published {
            Some(published) => (self.held(published)?, vec![format!("https://{}", published.server_name)]),
            None => (Held::default(), Vec::new()),
        };
        tls.check("--server", &addresses, name).map_err(Failure::usage)?;
        let caller = Caller::open_with(tls, held, tls.is_tls(&addresses), name).await;
        let caller = caller.map_err(|why| match *tls == CallerFlags::default() {
            true => Failure::Other(why.into()),
            false => Failure::usage(why),
        })?;
        let pods: Api<Pod> = Api::namespaced(self.cluster()?.client.clone(), &place.namespace);
        let Place { namespace, name, port, .. } = place;
        let opened = async {
            let mut forwarder = pods.portforward(name, &[*port]).await?;
            let stream = forwarder.take_stream(*port).context("the API server did not open a forwarded port")?;
            let shown = format!("pod {namespace}/{name}");
            let host = match &published {
                Some(published) => published.server_name.clone(),
                None => format!("{SERVICE}.{namespace}.svc"),
            };
            let address = format!("localhost:{port}");
            connect_through(&caller, &address, (&shown, &host), stream).await.map_err(anyhow::Error::msg)
        };
        let opened = timeout(FORWARD_WITHIN, opened).await.map_err(|_| anyhow!("the API server did not answer"));
        let opened =
            opened.flatten().with_context(|| format!("port {port} of pod {namespace}/{name} cannot be used"))?;
        Ok(self.reached(format!("pod {namespace}/{name}"), opened))
    }

    /// A replica that answers.
    pub(super) async fn any(&self) -> Result<Channel, Failure> {
        if self.is_given() {
            let channel = self.remote().any().await?;
            return Ok(self.reached(self.connection.server.join(","), channel));
        }
        let unpublished = match self.publications().await {
            Ok(Ok(published)) => return Box::pin(self.any_published(&published)).await,
            Ok(Err(why)) => why,
            Err(error) => return self.local().await?.ok_or(Failure::Other(error)),
        };
        let failure = match self.pods().await {
            Ok(pods) => match pods.first() {
                Some(first) => {
                    let Place { namespace, name, .. } = first;
                    let how = match self.connection.tls.is_tls(&[]) {
                        true => "over TLS",
                        false => "in plaintext through the API server, without credentials",
                    };
                    note_once(format!("{unpublished}; pod {namespace}/{name} is asked {how}"));
                    return self.forward(first).await;
                }
                None if unpublished == Unpublished::Absent => {
                    Failure::Other(anyhow!(NotThere(self.cluster()?.name.clone())))
                }
                None => Failure::Other(anyhow!("{unpublished}; no pod of the graph service was found by its labels")),
            },
            Err(error) => Failure::Other(error.context(unpublished)),
        };
        self.local().await?.ok_or(failure)
    }

    /// The replica at the address that another replica named, where it can be reached.
    pub(super) async fn at(&self, hint: &str) -> Option<Channel> {
        if self.is_given() || self.local.get().is_some() {
            return self.remote().at(hint).await.map(|channel| self.reached(hint.to_owned(), channel));
        }
        let pods = self.pods().await.ok()?;
        let hinted = pods.iter().find(|place| place.is_at(hint))?;
        self.forward(hinted).await.ok()
    }
}

/// Prints how the service is reached, unless the last connection of this command said the same.
pub(super) fn note_once(text: String) {
    static SAID: Mutex<String> = Mutex::new(String::new());
    let mut said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
    if *said != text {
        note(&text);
        *said = text;
    }
}

/// A listed pod. The decoders of all fields of a pod would be a fortieth of the program.
type Listed = Object<PodSpec, PodStatus>;

#[derive(Clone, Debug, Deserialize)]
struct PodSpec {
    containers: Vec<Container>,
}

#[derive(Clone, Debug, Deserialize)]
struct Container {
    #[serde(default)]
    ports: Vec<ContainerPort>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ContainerPort {
    name: Option<String>,
    container_port: u16,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct PodStatus {
    #[serde(default)]
    conditions: Vec<PodCondition>,
    #[serde(default, rename = "podIP")]
    pod_ip: String,
}

#[derive(Clone, Debug, Deserialize)]
struct PodCondition {
    r#type: String,
    status: String,
}

fn is_ready(pod: &Listed) -> bool {
    let mut conditions = pod.status.iter().flat_map(|status| &status.conditions);
    let ready = conditions.any(|condition| condition.r#type == "Ready" && condition.status == "True");
    ready && pod.metadata.deletion_timestamp.is_none()
}

/// A pod, and the port of its gRPC API.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    namespace: String,
    name: String,
    ip: String,
    port: u16,
}

impl Place {
    fn of(pod: &Listed) -> Option<Place> {
        let mut ports = pod.spec.containers.iter().flat_map(|container| &container.ports);
        let named = ports.find(|port| port.name.as_deref() == Some(PORT_NAME));
        let port = named.map_or(PORT, |port| port.container_port);
        let ip = pod.status.as_ref().map(|status| status.pod_ip.clone()).unwrap_or_default();
        Some(Place { namespace: pod.metadata.namespace.clone()?, name: pod.metadata.name.clone()?, ip, port })
    }

    /// Whether a replica's address leads to this pod: by its IP, or by its name as the first label of a host name.
    fn is_at(&self, hint: &str) -> bool {
        let host = hint.rsplit_once(':').map_or(hint, |(host, _)| host).trim_matches(['[', ']']);
        !host.is_empty() && (host == self.ip || host.split('.').next() == Some(self.name.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_hint_leads_to_the_pod_whose_address_it_is() {
        let pod = |name: &str, ip: &str, ports: serde_json::Value| -> Listed {
            let containers = json!([{ "name": "graph", "ports": ports }]);
            let metadata = json!({ "namespace": "kube-system", "name": name });
            serde_json::from_value(
                json!({ "metadata": metadata, "spec": { "containers": containers }, "status": { "podIP": ip } }),
            )
            .unwrap()
        };
        let place = Place::of(&pod("graph-0", "10.0.0.5", json!([{ "name": "grpc", "containerPort": 7000 }]))).unwrap();
        assert_eq!((place.port, place.is_at("10.0.0.5:7450")), (7000, true));
        assert!(place.is_at("graph-0.graph.kube-system.svc:7450") && !place.is_at("10.0.0.50:7450"));
        assert!(!place.is_at("") && !place.is_at("graph-01.graph:7450"));
        let six = Place::of(&pod("graph-1", "fd00::5", json!([]))).unwrap();
        assert_eq!((six.port, six.is_at("[fd00::5]:7450")), (PORT, true));
    }
}
