//! One object of the recorded graph, by its name.

use super::Problem;
use engine::leader::{Queries, Tombstone};
use engine::object::{Name, Uid};
use graph_service::options::kind_name;
use proto::convert::{self, Clock};
use proto::graph::v1beta1::ExplainObjectResponse;
use recording::Replay;
use runtime::visible;

/// Explains the object `TYPE/NAME`.
pub(super) fn explain(
    replay: &Replay,
    clock: Clock,
    named: &str,
    namespace: &str,
) -> Result<ExplainObjectResponse, Problem> {
    let queries = replay.queries();
    let Some((of, name)) = named.split_once('/').filter(|(of, name)| !of.is_empty() && !name.is_empty()) else {
        return Err(Problem::sentence(format!("--why {named:?} is not TYPE/NAME, such as pod/web")));
    };
    let of = kind_name(of).map_err(|why| Problem::sentence(format!("--why {named:?}: {why}")))?;
    let collections = queries.resources_called(&of);
    if collections.is_empty() {
        return Err(Problem::sentence(visible::line(&format!("the recording has no type {of} at this time"))));
    }
    for collection in &collections {
        let Some(kind) = queries.kind_of(collection) else { continue };
        if let Some(uid) = uid(&queries, &collection.group, &kind, namespace, name) {
            return Ok(of_uid(&queries, clock, &uid).unwrap_or_default());
        }
        let is_it = |tombstone: &&Tombstone| {
            let object = &tombstone.object;
            object.group_resource() == *collection && *object.name == *name && is_in(&object.namespace, namespace)
        };
        if let Some(tombstone) = queries.tombstones().filter(is_it).last() {
            return Ok(convert::gone(tombstone.clone(), clock));
        }
    }
    let what = format!("the recording does not know {named} in namespace {namespace} at this time");
    Err(Problem::sentence(visible::line(&what)))
}

/// Explains the object with this uid, if the graph has it or remembers it.
pub(super) fn of_uid(queries: &Queries<'_>, clock: Clock, uid: &Uid) -> Option<ExplainObjectResponse> {
    let explained = queries.explain(uid).map(|of| convert::explanation(of, clock));
    explained.or_else(|| queries.tombstone(uid).map(|tombstone| convert::gone(tombstone.clone(), clock)))
}

fn uid(queries: &Queries<'_>, group: &str, kind: &str, namespace: &str, name: &str) -> Option<Uid> {
    [namespace, ""].into_iter().find_map(|namespace| queries.uids_at(group, kind, namespace, name, 1).pop())
}

/// Objects without a namespace are in every one.
fn is_in(of: &Name, namespace: &str) -> bool {
    of.is_empty() || **of == *namespace
}
