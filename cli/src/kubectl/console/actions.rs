//! The paths below `/console`. They ask and change the API server with the credentials of the request, as the commands
//! of the same names do with those of the command line.

use super::backend::Backend;
use super::events::{self, About};
use super::status::{self, Coordinates};
use crate::failure::{Failure, sentence};
use crate::kubectl::delete;
use crate::kubectl::ending::Problem;
use crate::kubectl::flags::{Cascade, ScopeFlags};
use crate::kubectl::guards::{approve, manifest, release};
use crate::kubectl::naming::{Catalogue, Found, Named, is_name, read as read_object, shown};
use crate::kubectl::pausing;
use crate::kubectl::reviews::{self, Attributes, Unauthenticated};
use crate::kubectl::service::Service;
use engine::scope::{self, Filter};
use graph_service::options::kind_name;
use http::StatusCode;
use proto::r#type::v1beta1::{ObjectRef, OwnerScope};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::time::Duration;

/// Why an action was not carried out. The body has the sentence as `error`.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) status: StatusCode,
    pub(super) body: Value,
}

impl Refusal {
    fn new(status: StatusCode, sentence: impl Into<String>) -> Refusal {
        Refusal { status, body: json!({ "error": sentence.into() }) }
    }
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Refusal {
        match failure {
            Failure::Usage(sentence) => Refusal::new(StatusCode::BAD_REQUEST, sentence),
            Failure::Refused(sentence) => Refusal::new(StatusCode::CONFLICT, sentence),
            Failure::TimedOut(sentence) => Refusal::new(StatusCode::GATEWAY_TIMEOUT, sentence),
            Failure::Other(error) => Refusal::new(StatusCode::BAD_GATEWAY, sentence(&error)),
        }
    }
}

impl From<Problem> for Refusal {
    fn from(problem: Problem) -> Refusal {
        let is_unknown = matches!(&problem, Problem::Other(error) if error.is::<Unauthenticated>());
        let refusal = Refusal::from(Failure::from(problem));
        if is_unknown { Refusal { status: StatusCode::UNAUTHORIZED, ..refusal } } else { refusal }
    }
}

type Done = Result<Value, Refusal>;

/// Carries out the action of a path.
pub(super) async fn act(backend: &Backend, path: &str, body: &[u8]) -> Done {
    match path {
        "/console/access" => access(backend, &parsed(body)?).await,
        "/console/events" => events(backend, &parsed(body)?).await,
        "/console/status" => status(backend, &parsed(body)?).await,
        "/console/delete" => delete(backend, parsed(body)?).await,
        "/console/guards/pause" => pause(backend, parsed(body)?).await,
        "/console/guards/create" => create(backend, parsed(body)?).await,
        "/console/guards/release" => release(backend, parsed(body)?).await,
        "/console/guards/approve" => approve(backend, parsed(body)?).await,
        _ => Err(Refusal::new(StatusCode::NOT_FOUND, format!("the console has no path {path}"))),
    }
}

/// The caller, the cluster, and the graph service.
pub(super) async fn session(backend: &Backend) -> Done {
    let session = &backend.session;
    let service = backend.service().await;
    // This call comes last: the page compares its time with the clock of the browser.
    let caller = reviews::caller(session).await?;
    let (service, is_direct) = match service {
        Ok(service) => {
            let mode = if session.is_file() {
                "snapshot"
            } else if service.is_direct() {
                "direct"
            } else {
                "service"
            };
            (json!({ "address": service.address, "mode": mode }), service.is_direct())
        }
        Err(problem) => (json!({ "address": "", "mode": "unreachable", "error": problem.to_string() }), false),
    };
    let time = i64::try_from(caller.at.as_secs()).ok();
    let time = time.map(|seconds| prost_types::Timestamp { seconds, nanos: 0 }.to_string());
    Ok(json!({
        "user": caller.user,
        "cluster": session.cluster.url,
        "context": session.cluster.name,
        "version": runtime::version::VERSION,
        "canWrite": backend.writes && !is_direct,
        "login": backend.is_for_others(),
        "service": service,
        "time": time,
    }))
}

fn parsed<T: DeserializeOwned>(body: &[u8]) -> Result<T, Refusal> {
    let bad = |error| {
        Refusal::new(StatusCode::BAD_REQUEST, format!("the body of the request is not what the path takes: {error}"))
    };
    serde_json::from_slice(body).map_err(bad)
}

/// The graph service, if the console may change anything.
async fn writable(backend: &Backend) -> Result<Service, Refusal> {
    let refused = |sentence: &str| Err(Refusal::new(StatusCode::FORBIDDEN, sentence));
    if !backend.writes {
        return refused("the console was started with --read-only: start it without the flag to change anything");
    }
    let service = backend.service().await?;
    if service.is_direct() {
        return refused(
            "the console lists the cluster itself and only reads: start it with a graph service to change anything",
        );
    }
    Ok(service)
}

async fn access(backend: &Backend, asked: &Attributes) -> Done {
    let (allowed, reason) = reviews::may(&backend.session, asked).await?;
    Ok(json!({ "allowed": allowed, "reason": reason }))
}

async fn events(backend: &Backend, about: &About) -> Done {
    let About { namespace, uid } = about;
    if !namespace.is_empty() && !is_name(namespace) || uid.is_empty() {
        let sentence = format!("{namespace:?} and {uid:?} are not the namespace and the uid of an object");
        return Err(Refusal::new(StatusCode::BAD_REQUEST, sentence));
    }
    Ok(events::about(&backend.session, about).await?)
}

async fn status(backend: &Backend, wanted: &Coordinates) -> Done {
    let Some(path) = wanted.path() else {
        let sentence = "the group, version, resource, namespace, name and uid are not those of an object";
        return Err(Refusal::new(StatusCode::BAD_REQUEST, sentence));
    };
    Ok(status::of(&backend.session, wanted, &path).await?)
}

#[derive(Deserialize)]
struct Deletion {
    #[serde(flatten)]
    object: Coordinates,
    policy: Cascade,
    digest: String,
}

/// Deletes one object, if it is the one that was shown and its plan has the digest that was shown.
async fn delete(backend: &Backend, wanted: Deletion) -> Done {
    let mut service = writable(backend).await?;
    let session = &backend.session;
    let Deletion { object, policy, digest } = wanted;
    let Coordinates { group, version, resource, namespace, name, uid } = object;
    let catalogue = Catalogue::ask(session).await?;
    let is_it = |(of, at, called): (&str, &str, &str)| (of, at, called) == (&*group, &*version, &*resource);
    let served = catalogue.0.into_iter().find(|served| is_it((&served.group, &served.version, &served.resource)));
    let bad = |sentence: String| Refusal::new(StatusCode::BAD_REQUEST, sentence);
    let Some(served) = served else {
        return Err(bad(format!("the API server has no resource {resource:?} in {group:?} {version:?}")));
    };
    if !is_name(&name) || served.namespaced == namespace.is_empty() || !(namespace.is_empty() || is_name(&namespace)) {
        return Err(bad(format!(
            "{namespace:?} and {name:?} are not the namespace and the name of an object of {resource}"
        )));
    }
    let mut object = Named { served, namespace, name, found: Found::Absent };
    object.found = read_object(session, &object).await?;
    let what = shown(&object.reference());
    if let Found::There { uid: now, .. } = &object.found
        && *now != uid
    {
        let sentence = format!("{what} is another object now: its uid is {now}, not {uid}; nothing was deleted");
        return Err(Refusal::new(StatusCode::CONFLICT, sentence));
    }
    let named = [object];
    delete::there(&named)?;
    let plan = delete::certain(&mut service, &named, policy).await?;
    if plan.digest != digest {
        let sentence =
            format!("the plan has changed: its digest is {}, not {digest}; nothing was deleted", plan.digest);
        let body = json!({ "error": sentence, "digest": digest, "currentDigest": plan.digest });
        return Err(Refusal { status: StatusCode::CONFLICT, body });
    }
    delete::carry_out(session, &named, policy, |_| Ok(())).await?;
    Ok(json!({ "accepted": true }))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct NewPause {
    /// The namespaces to pause. The pause covers everything if all fields of the scope are empty.
    namespaces: Vec<String>,
    /// The kinds to pause, such as `pods` or `deployments.apps`.
    kinds: Vec<String>,
    /// Only this object and all objects below it.
    owner: Option<Owner>,
    reason: String,
    lifetime_seconds: u64,
}

#[derive(Deserialize)]
struct Owner {
    group: String,
    resource: String,
    /// Empty for cluster scope.
    namespace: String,
    name: String,
    /// Empty for any object with this name.
    uid: String,
}

/// The scope of a pause. `None` is everything.
fn scope_of(namespaces: Vec<String>, kinds: &[String], owner: Option<Owner>) -> Result<Option<Filter>, Failure> {
    let kinds =
        kinds.iter().map(|kind| kind_name(kind).map_err(|why| Failure::Usage(format!("{kind:?} is no kind: {why}"))));
    let flags = ScopeFlags { kind: kinds.collect::<Result<_, _>>()?, namespace: namespaces, ..ScopeFlags::default() };
    let owner = owner.map(|Owner { group, resource, namespace, name, uid }| {
        let wire = OwnerScope { group, resource, namespace, name, uid };
        scope::OwnerScope::try_from(wire).map_err(|why| Failure::Usage(format!("the owner is no object: {why}")))
    });
    let filter = Filter { owner: owner.transpose()?, ..flags.filter(&Default::default()) };
    Ok(Some(filter).filter(|filter| *filter != Filter::default()))
}

async fn pause(backend: &Backend, wanted: NewPause) -> Done {
    let mut service = writable(backend).await?;
    let NewPause { namespaces, kinds, owner, reason, lifetime_seconds } = wanted;
    let filter = scope_of(namespaces, &kinds, owner)?;
    let order = pausing::order(filter, Duration::from_secs(lifetime_seconds), reason)?;
    let (pause, _) = pausing::begin(&mut service.admin, &order).await?;
    Ok(json!({ "name": pause.name, "effective": pause.effective, "pending": pause.pending }))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct NewGuard {
    /// In YAML or JSON.
    manifest: String,
    /// Whether the API server only checks it.
    dry_run: bool,
}

async fn create(backend: &Backend, wanted: NewGuard) -> Done {
    writable(backend).await?;
    let name = manifest::create(&backend.session, &wanted.manifest, wanted.dry_run).await?;
    Ok(json!({ "name": name }))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Freed {
    /// Such as `pauses/NAME`.
    name: String,
    /// For gates.
    lifetime_seconds: Option<u64>,
    reason: Option<String>,
}

async fn release(backend: &Backend, wanted: Freed) -> Done {
    let mut service = writable(backend).await?;
    let Freed { name, lifetime_seconds, reason } = wanted;
    let lifetime = lifetime_seconds.map(Duration::from_secs);
    let done = release::one(&backend.session, &mut service.admin, name, lifetime, reason).await?;
    Ok(json!({ "done": done }))
}

#[derive(Deserialize)]
struct Approval {
    /// Such as `approvals/NAME`.
    approval: String,
    root: Root,
    digest: String,
}

#[derive(Deserialize)]
struct Root {
    group: String,
    kind: String,
    namespace: String,
    name: String,
}

async fn approve(backend: &Backend, wanted: Approval) -> Done {
    let mut service = writable(backend).await?;
    let Root { group, kind, namespace, name } = wanted.root;
    let root = ObjectRef { group, kind, namespace, name, ..ObjectRef::default() };
    approve::one(&backend.session, &mut service, &wanted.approval, &root, &wanted.digest).await?;
    Ok(json!({}))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The scope of a pause with these fields of its body.
    fn scope(fields: &[(&str, Value)]) -> Result<Option<Filter>, Failure> {
        let mut body = json!({ "namespaces": [], "kinds": [], "reason": "r", "lifetimeSeconds": 60 });
        for (field, value) in fields {
            body[*field] = value.clone();
        }
        let NewPause { namespaces, kinds, owner, .. } = serde_json::from_value(body).unwrap();
        scope_of(namespaces, &kinds, owner)
    }

    fn owner(name: &str, uid: &str) -> Value {
        json!({ "group": "apps", "resource": "deployments", "namespace": "shop", "name": name, "uid": uid })
    }

    #[test]
    fn a_pause_has_each_condition_of_its_scope() {
        assert_eq!(scope(&[]).unwrap(), None, "everything");
        let cascade = scope(&[("owner", owner("web", "u"))]).unwrap().unwrap();
        assert_eq!(cascade.to_string(), "below deployments.apps shop/web");
        assert_eq!(cascade.owner.unwrap().uid, engine::object::Uid::parse("u"));
        let any = scope(&[("owner", owner("web", ""))]).unwrap().unwrap();
        assert_eq!(any.owner.unwrap().uid, None);
        let fields = [("namespaces", json!(["shop"])), ("kinds", json!(["pods"])), ("owner", owner("web", "u"))];
        assert_eq!(scope(&fields).unwrap().unwrap().to_string(), "pods in shop below deployments.apps shop/web");
        for (wrong, part) in [
            (("kinds", json!(["No Kind"])), "is no kind"),
            (("owner", owner("", "u")), "the owner is no object: field name"),
        ] {
            let Err(Failure::Usage(said)) = scope(&[wrong]) else { panic!("{part}") };
            assert!(said.contains(part), "{said}");
        }
    }
}
