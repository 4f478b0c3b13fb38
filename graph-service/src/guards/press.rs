//! Creates and deletes a Pause for a caller, and bypasses a gate, and waits until the engine has applied it.

use super::resource::{self, ACTOR_MAX_BYTES, PRESSED_BY, Seen, Sight, Standing};
use super::{ANSWER_MAX_BYTES, ANSWER_WITHIN, VERSION, date, deletion_of, path};
use crate::driver::Reader;
use crate::messages::Control;
use engine::guard::{GuardId, GuardKind};
use engine::hold;
use engine::leader::{Input, Mode, Queries};
use engine::object::GroupResource;
use engine::object::Uid;
use engine::object::clip;
use engine::scope::{Filter, Scope};
use engine::view::GuardView;
use http::{Method, StatusCode};
use kube_api::{Answer, NotFound, call, classify_not_found, media, parse_status, request};
use proto::convert::PauseOrder;
use proto::r#type::v1beta1::{LabelRequirement, LabelSelector, ObjectFilter};
use runtime::visible;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, interval};

mod bypass;
#[cfg(test)]
mod tests;

/// Annotation with the id of the request that created the pause.
pub(crate) const REQUEST_ID: &str = "ownergraph.dev/request-id";
/// How long a caller waits for the pause to become effective.
const EFFECTIVE_WITHIN: Duration = Duration::from_secs(2);
/// Interval of checks.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Creates and deletes pauses, and bypasses gates. In mode observe, it refuses.
#[derive(Clone)]
pub(crate) struct Press {
    pub(crate) mode: Mode,
    pub(crate) client: kube::Client,
    pub(crate) control: mpsc::Sender<Control>,
    pub(crate) reader: Reader,
}

/// Why a call failed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The definition is not installed.
    NotInstalled,
    /// No pause or gate has that name.
    NotFound,
    /// Mode observe creates and changes no guards.
    Observes,
    /// Any other error, as a sentence.
    Refused(String),
}

impl std::fmt::Debug for Press {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Press").finish_non_exhaustive()
    }
}

impl Press {
    /// Creates a pause. If this replica leads, the call waits a moment for the pause to become effective. The same
    /// request id returns the same pause.
    pub(crate) async fn pause(&self, order: &PauseOrder, user: Option<&str>) -> Result<GuardView, Failure> {
        self.may_write()?;
        let written = self.create(order, user).await?;
        let Seen::Standing(standing) = written else {
            return Err(Failure::Refused("another client is deleting the pause".to_owned()));
        };
        let Standing { guard, .. } = *standing;
        let uid = guard.uid.clone();
        self.tell(Input::GuardSeen(guard)).await?;
        let look = || self.reader.with(|queries| (queries.status().term.is_some(), find(queries, &uid)));
        let by = Instant::now() + EFFECTIVE_WITHIN;
        let mut looks = interval(LOOK_EVERY);
        loop {
            looks.tick().await;
            match look() {
                (leads, Some(view)) if view.effective || view.over || !leads || Instant::now() >= by => {
                    return Ok(view);
                }
                (_, Some(_)) => {}
                (_, None) if Instant::now() < by => {}
                (_, None) => {
                    let why =
                        "the pause is written, but this replica has not applied it; another client may have deleted it";
                    return Err(Failure::Refused(why.to_owned()));
                }
            }
        }
    }

    /// Deletes a pause, and waits until this replica has dropped it.
    pub(crate) async fn resume(&self, name: &str) -> Result<(), Failure> {
        self.may_write()?;
        let known = self
            .reader
            .with(|queries| queries.guards_of(GuardKind::Pause).into_iter().find(|view| *view.id.name == *name));
        let answer = self.send(Method::DELETE, &format!("{}/{name}", path(GuardKind::Pause)), &Value::Null).await?;
        match answer.status {
            StatusCode::OK | StatusCode::ACCEPTED => {}
            StatusCode::NOT_FOUND => {
                let found = classify_not_found(&answer, hold::GROUP, GuardKind::Pause.plural(), name);
                return Err(match found {
                    Some(NotFound::ThisObject) => Failure::NotFound,
                    Some(NotFound::Resource | NotFound::Group | NotFound::Other) | None => Failure::NotInstalled,
                });
            }
            _ => return Err(refused("delete the pause", &answer)),
        }
        let deleted =
            parse_status(&answer).and_then(|status| status.details).and_then(|details| Uid::parse(&details.uid));
        if let Some(uid) = deleted.or_else(|| known.map(|view| view.uid)) {
            self.tell(Input::GuardGone { id: GuardId { kind: GuardKind::Pause, name: Arc::from(name) }, uid }).await?;
        }
        Ok(())
    }

    fn may_write(&self) -> Result<(), Failure> {
        match self.mode {
            Mode::Enforce => Ok(()),
            Mode::Observe => Err(Failure::Observes),
        }
    }

    /// Sends an input to the driver. Only terms and stops precede it. Returns after the round that handles it.
    async fn tell(&self, input: Input) -> Result<(), Failure> {
        let (taken, handled) = tokio::sync::oneshot::channel();
        let stopped = |_| Failure::Refused("the service is stopping".to_owned());
        self.control.send(Control::Input(input)).await.map_err(|_| stopped(()))?;
        self.control.send(Control::Mark(taken)).await.map_err(|_| stopped(()))?;
        handled.await.map_err(|_| stopped(()))
    }

    async fn create(&self, order: &PauseOrder, user: Option<&str>) -> Result<Seen, Failure> {
        let id = &order.request_id;
        // The name is short, because users type it. A pause with this name may belong to another call, or this call may
        // be a repetition.
        let names = [format!("pause-{}", id.split('-').next().unwrap_or(id)), format!("pause-{id}")];
        for name in &names {
            let answer = self.send(Method::POST, &path(GuardKind::Pause), &write(name, order, user)?).await?;
            match answer.status {
                StatusCode::CREATED | StatusCode::OK => {
                    let seen = seen(GuardKind::Pause, &answer, Sight::Fresh { now: date(&answer) })?;
                    return self.exactly(order, name, seen).await;
                }
                StatusCode::NOT_FOUND => return Err(Failure::NotInstalled),
                StatusCode::CONFLICT => {}
                _ => return Err(refused("create the pause", &answer)),
            }
            let there = self.send(Method::GET, &format!("{}/{name}", path(GuardKind::Pause)), &Value::Null).await?;
            let object: Value = serde_json::from_slice(&there.body).unwrap_or(Value::Null);
            if there.status == StatusCode::OK && object["metadata"]["annotations"][REQUEST_ID].as_str() == Some(id) {
                return seen(GuardKind::Pause, &there, Sight::Found { now: date(&there) });
            }
        }
        Err(Failure::Refused(format!("another pause is already named {}", names[1])))
    }

    /// Deletes a pause that has another scope than the order. A definition of an earlier version drops the conditions
    /// that it does not know, and the pause would hold more than was asked for.
    async fn exactly(&self, order: &PauseOrder, name: &str, seen: Seen) -> Result<Seen, Failure> {
        let Seen::Standing(standing) = &seen else { return Ok(seen) };
        if is_same(&standing.guard.scope, &order.scope) {
            return Ok(seen);
        }
        let options = deletion_of(&standing.guard.uid);
        let answer = self.send(Method::DELETE, &format!("{}/{name}", path(GuardKind::Pause)), &options).await?;
        if !answer.status.is_success() && answer.status != StatusCode::NOT_FOUND {
            return Err(refused(&format!("delete pause {name}, whose scope is too wide"), &answer));
        }
        let why = "the definition of pauses does not know all conditions of the scope, so the pause was deleted again; `ownergraph crds` prints the present definition";
        Err(Failure::Refused(why.to_owned()))
    }

    async fn send(&self, method: Method, path: &str, body: &Value) -> Result<Answer, Failure> {
        let request = request(method, path, media::JSON, body).map_err(|error| Failure::Refused(error.to_string()))?;
        let answer = call(&self.client, request, ANSWER_MAX_BYTES, ANSWER_WITHIN).await;
        answer.map_err(|error| Failure::Refused(error.to_string()))
    }
}

fn find(queries: &Queries<'_>, uid: &Uid) -> Option<GuardView> {
    queries.guards_of(GuardKind::Pause).into_iter().find(|view| view.uid == *uid)
}

fn seen(kind: GuardKind, answer: &Answer, sight: Sight) -> Result<Seen, Failure> {
    let text = std::str::from_utf8(&answer.body).map_err(|error| Failure::Refused(error.to_string()))?;
    resource::read(kind, text, sight).map_err(|why| Failure::Refused(format!("the API server returned {why}")))
}

fn refused(what: &str, answer: &Answer) -> Failure {
    Failure::Refused(format!("{what}: {}", answer.refusal()))
}

/// A new Pause, requested by this user if known. Its scope has every condition of the order; a condition that the
/// resource cannot say is an error.
pub(crate) fn write(name: &str, order: &PauseOrder, user: Option<&str>) -> Result<Value, Failure> {
    let mut annotations = json!({ REQUEST_ID: order.request_id });
    if let Some(user) = user {
        annotations[PRESSED_BY] = clip(&visible::line(user), ACTOR_MAX_BYTES).into();
    }
    let mut spec = json!({ "reason": order.reason, "lifetimeSeconds": order.lifetime.as_secs() });
    if !order.scope.targets.is_empty() {
        let targets = order.scope.targets.iter().map(target).collect::<Result<Vec<_>, _>>()?;
        spec["scope"] = json!({ "targets": targets });
    }
    Ok(json!({
        "apiVersion": format!("{}/{VERSION}", hold::GROUP),
        "kind": "Pause",
        "metadata": { "name": name, "annotations": annotations },
        "spec": spec,
    }))
}

fn target(filter: &Filter) -> Result<Value, Failure> {
    let wire = ObjectFilter::from(filter.clone());
    let mut target = serde_json::Map::new();
    let mut put = |field: &str, value: Value| target.insert(field.to_owned(), value);
    if !filter.resources.is_empty() {
        put("resources", filter.resources.iter().map(resource).collect());
    }
    for (field, names) in [("namespaces", &wire.namespaces), ("names", &wire.names)] {
        if !names.is_empty() {
            put(field, json!(names));
        }
    }
    for (field, chosen) in [("labelSelector", &wire.label_selector), ("namespaceSelector", &wire.namespace_selector)] {
        if let Some(chosen) = chosen {
            put(field, selector(chosen)?);
        }
    }
    if let Some(owner) = &filter.owner {
        let mut root = resource(&owner.resource);
        root["namespace"] = json!(&*owner.namespace);
        root["name"] = json!(&*owner.name);
        if let Some(uid) = &owner.uid {
            root["uid"] = json!(uid.to_string());
        }
        put("owner", root);
    }
    Ok(Value::Object(target))
}

fn resource(at: &GroupResource) -> Value {
    json!({ "group": &*at.group, "resource": &*at.resource })
}

fn selector(wire: &LabelSelector) -> Result<Value, Failure> {
    let mut expressions = Vec::new();
    for LabelRequirement { key, operator, values } in &wire.match_expressions {
        if operator.is_empty() {
            return Err(Failure::Refused(format!("the scope of a pause cannot have the condition {key}")));
        }
        let mut expression = json!({ "key": key, "operator": operator });
        if !values.is_empty() {
            expression["values"] = json!(values);
        }
        expressions.push(expression);
    }
    let mut selector = serde_json::Map::new();
    if !wire.match_labels.is_empty() {
        selector.insert("matchLabels".to_owned(), json!(wire.match_labels));
    }
    if !expressions.is_empty() {
        selector.insert("matchExpressions".to_owned(), expressions.into());
    }
    Ok(selector.into())
}

/// Whether two scopes have the same conditions. The order of requirements makes no difference.
fn is_same(one: &Scope, other: &Scope) -> bool {
    let sorted = |scope: &Scope| {
        let mut scope = scope.clone();
        for filter in &mut scope.targets {
            for requirements in [&mut filter.marks, &mut filter.namespace_marks] {
                requirements.sort_unstable();
                requirements.dedup();
            }
        }
        scope
    };
    sorted(one) == sorted(other)
}
