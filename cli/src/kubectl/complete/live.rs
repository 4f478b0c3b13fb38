//! Completions from the cluster or the kubeconfig.

use crate::kubectl::ending::Problem;
use crate::kubectl::flags::{Asking, Format};
use crate::kubectl::guards::store;
use crate::kubectl::naming::{self, Catalogue, Served};
use crate::kubectl::service::{Need, Service};
use crate::kubectl::session::Session;
use anyhow::Context as _;
use engine::guard::GuardKind;
use kube::api::ListParams;
use kube::config::Kubeconfig;
use proto::r#type::v1beta1::{GroupResource, ObjectFilter};
use std::collections::BTreeSet;
use std::time::Duration;

/// Maximum number of names that are read. The user types more characters to reach the others.
const WORDS_MAX: u32 = 500;
/// Maximum wait for the graph service. After it, the API server answers.
const GRAPH_WITHIN: Duration = Duration::from_secs(1);

/// The kind of words to complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Live {
    /// Types and names of objects.
    Objects,
    Types,
    Namespaces,
    /// Guards that `release` takes.
    Guards,
    /// Roots of cascades that wait for an approval, and budgets.
    Roots,
    Contexts,
}

/// The completions that begin with `typed`. `named` are the arguments that the line already has.
pub(super) async fn words(
    what: Live,
    mut asking: Asking,
    named: &[String],
    typed: &str,
) -> Result<Vec<String>, Problem> {
    if what == Live::Contexts {
        let read = match &asking.connection.kubeconfig {
            Some(path) => Kubeconfig::read_from(path),
            None => Kubeconfig::read(),
        };
        let read = read.context("there is no kubeconfig")?;
        return Ok(read.contexts.into_iter().map(|context| context.name).collect());
    }
    asking.output.form = None;
    let mut session = Session::open(asking, &[Format::Table]).await?;
    match what {
        Live::Namespaces => {
            let namespaces = Served { version: "v1".into(), resource: "namespaces".into(), ..Served::default() };
            return listed(&session, &namespaces, "").await;
        }
        Live::Guards => {
            let kinds = [GuardKind::Pause, GuardKind::Protection, GuardKind::Gate, GuardKind::Budget];
            return Ok(guards_of(&session, &kinds, typed).await);
        }
        Live::Roots => {
            let mut words = guards_of(&session, &[GuardKind::Budget], typed).await;
            words.extend(roots(&mut session).await);
            return Ok(words);
        }
        Live::Objects | Live::Types | Live::Contexts => {}
    }
    let catalogue = Catalogue::ask(&session).await?;
    if what == Live::Types {
        return Ok(types(&catalogue, typed).into_iter().collect());
    }
    let of_type = |of: &str| catalogue.find(of).cloned().map_err(Problem::sentence);
    if let Some((of, name)) = typed.split_once('/') {
        return Ok(prefixed(of, names(&mut session, &of_type(of)?, name).await?));
    }
    match named {
        [of] if !of.contains('/') => names(&mut session, &of_type(of)?, typed).await,
        _ => {
            let types = types(&catalogue, typed);
            let only = match types.iter().next() {
                Some(only) if types.len() == 1 => prefixed(only, names(&mut session, &of_type(only)?, "").await?),
                Some(_) | None => Vec::new(),
            };
            Ok(types.into_iter().chain(only).collect())
        }
    }
}

/// Guards as `pause/NAME`. Kinds whose list is refused have none.
async fn guards_of(session: &Session, kinds: &[GuardKind], typed: &str) -> Vec<String> {
    let mut words = Vec::new();
    for &kind in kinds {
        let prefix = format!("{}/", kind.as_str());
        if prefix.starts_with(typed) || typed.starts_with(&prefix) {
            let listed = store::list(session, kind).await.unwrap_or_default();
            words.extend(listed.into_iter().map(|(name, _)| format!("{prefix}{name}")));
        }
    }
    words
}

/// The roots in the namespace that wait for an approval, if the leader answers in time.
async fn roots(session: &mut Session) -> Vec<String> {
    let namespace = session.namespace().to_owned();
    let waiting = async { Some(Service::connect(session, Need::Leader).await.ok()?.waiting().await) };
    let waiting = tokio::time::timeout(GRAPH_WITHIN, waiting).await.ok().flatten().unwrap_or_default();
    let roots = waiting.into_iter().filter_map(|(cascade, _)| cascade.root);
    let here = roots.filter(|root| root.namespace.is_empty() || root.namespace == namespace);
    here.map(|root| naming::by_type(&root)).collect()
}

fn prefixed(of: &str, names: Vec<String>) -> Vec<String> {
    names.into_iter().map(|name| format!("{of}/{name}")).collect()
}

/// Types that can be listed. The group is added if another group has the same name.
fn types(catalogue: &Catalogue, typed: &str) -> BTreeSet<String> {
    let name = |served: &&Served| match catalogue.find(&served.resource) {
        Ok(first) if first.group == served.group => served.resource.clone(),
        Ok(_) | Err(_) => format!("{}.{}", served.resource, served.group),
    };
    let listed = catalogue.0.iter().filter(|served| served.can("list") && served.resource.starts_with(typed));
    listed.map(|served| name(&served)).collect()
}

/// Names from the graph, which also has recently deleted objects. If no graph answers in time, names from the API
/// server.
async fn names(session: &mut Session, served: &Served, typed: &str) -> Result<Vec<String>, Problem> {
    let namespace = if served.namespaced { session.namespace().to_owned() } else { String::new() };
    let known = async {
        let mut service = Service::connect(session, Need::Service).await?;
        let of = GroupResource { group: served.group.clone(), resource: served.resource.clone() };
        let filter = ObjectFilter {
            resources: vec![of],
            namespaces: if served.namespaced { vec![namespace.clone()] } else { Vec::new() },
            cel: format!("object.name.startsWith({})", serde_json::Value::from(typed)),
            ..ObjectFilter::default()
        };
        Ok::<_, Problem>(service.export(vec![filter]).await?.nodes)
    };
    match tokio::time::timeout(GRAPH_WITHIN, known).await {
        Ok(Ok(nodes)) => {
            let name = |node: proto::graph::v1beta1::Node| node.r#ref.map(|object| object.name);
            let most = usize::try_from(WORDS_MAX).unwrap_or(usize::MAX);
            Ok(nodes.into_iter().filter_map(name).take(most).collect())
        }
        Ok(Err(_)) | Err(_) => listed(session, served, &namespace).await,
    }
}

async fn listed(session: &Session, served: &Served, namespace: &str) -> Result<Vec<String>, Problem> {
    let page = naming::list(session, served, namespace, &ListParams::default().limit(WORDS_MAX)).await?;
    Ok(page.objects.into_iter().map(|object| object.name).collect())
}
