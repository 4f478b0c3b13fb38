//! Completions from the cluster or the kubeconfig.

use crate::kubectl::ending::Problem;
use crate::kubectl::flags::{Asking, Format};
use crate::kubectl::naming::{self, Catalogue, Served};
use crate::kubectl::service::{Need, Service};
use crate::kubectl::session::Session;
use anyhow::Context as _;
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
    Namespaces,
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
    if what == Live::Namespaces {
        let namespaces = Served { version: "v1".into(), resource: "namespaces".into(), ..Served::default() };
        return listed(&session, &namespaces, "").await;
    }
    let catalogue = Catalogue::ask(&session).await?;
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
