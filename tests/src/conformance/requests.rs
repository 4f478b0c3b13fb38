//! Tables of requests with their answers. The sandbox must answer like the real API server.

mod tables;

use super::runner::Outcome;
use super::step::{Kind, POD, merge};
use super::world::World;
use anyhow::{Context, ensure};
use http::Method;
use serde_json::{Value, json};

pub use tables::all;

/// The patch types.
pub const MERGE: &str = "application/merge-patch+json";
pub const STRATEGIC: &str = "application/strategic-merge-patch+json";
pub const JSON: &str = "application/json";

/// One object and the requests about it, in order.
#[derive(Debug, Clone)]
pub struct Row {
    pub id: &'static str,
    /// The subject of the row.
    pub about: String,
    pub kind: Kind,
    /// The fields of the object on top of the minimum of its kind. `None` creates no object.
    pub object: Option<Value>,
    pub asks: Vec<Ask>,
}

/// One request and its expected answer.
#[derive(Debug, Clone)]
pub struct Ask {
    pub method: Method,
    /// The request is about the collection, and not about the object.
    pub collection: bool,
    pub content_type: &'static str,
    /// The body. `"$uid"` and `"$version"` stand for the values of the object before the request.
    pub body: Option<Value>,
    /// The status, and the reason of a failure.
    pub code: u16,
    pub reason: &'static str,
    /// The kind of a successful answer, if the row is about it.
    pub answers: Option<&'static str>,
    pub then: Then,
}

/// The state after the request.
#[derive(Debug, Clone, Default)]
pub struct Then {
    /// `Some(false)` means that the object is gone.
    pub there: Option<bool>,
    /// The finalizers.
    pub finalizers: Option<Vec<&'static str>>,
    /// `metadata.deletionGracePeriodSeconds`. `Some(None)` means that the field is absent.
    pub grace: Option<Option<i64>>,
    pub mark: Option<Mark>,
    /// The increase of `metadata.generation`.
    pub generation: Option<i64>,
    /// `metadata.ownerReferences`, each with exactly these fields.
    pub owners: Option<Value>,
    /// True if the object was written.
    pub written: Option<bool>,
}

/// The effect on the deletion mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    None,
    /// The request set a mark.
    New,
    Same,
    Earlier,
}

/// A request about the object whose answer must be 200.
pub fn ask(method: Method, body: Value) -> Ask {
    Ask {
        method,
        collection: false,
        content_type: JSON,
        body: Some(body),
        code: 200,
        reason: "",
        answers: None,
        then: Then::default(),
    }
}

/// A DELETE with these options.
pub fn delete(options: Value) -> Ask {
    let mut body = json!({ "kind": "DeleteOptions", "apiVersion": "v1" });
    merge(&mut body, &options);
    ask(Method::DELETE, body)
}

/// A patch of this type.
pub fn patch(content_type: &'static str, body: Value) -> Ask {
    Ask { content_type, ..ask(Method::PATCH, body) }
}

impl Ask {
    /// The answer is a failure.
    pub fn fails(mut self, code: u16, reason: &'static str) -> Ask {
        self.code = code;
        self.reason = reason;
        self
    }

    pub fn gone(mut self) -> Ask {
        self.then.there = Some(false);
        self
    }

    pub fn left(mut self, finalizers: &[&'static str]) -> Ask {
        self.then.there = Some(true);
        self.then.finalizers = Some(finalizers.to_vec());
        self
    }

    pub fn grace(mut self, seconds: Option<i64>) -> Ask {
        self.then.grace = Some(seconds);
        self
    }

    pub fn mark(mut self, mark: Mark) -> Ask {
        self.then.mark = Some(mark);
        self
    }

    pub fn answers(mut self, kind: &'static str) -> Ask {
        self.answers = Some(kind);
        self
    }
}

/// Sends all requests, and lists the wrong answers.
pub async fn run(world: &World, rows: &[Row]) -> anyhow::Result<Outcome> {
    let namespace = "requests";
    world.namespace(namespace).await?;
    let mut outcome = Outcome::default();
    for (number, row) in rows.iter().enumerate() {
        let name = format!("row-{number}");
        let ended = run_row(world, namespace, &name, row).await;
        let about = format!("{} {}", row.id, row.about);
        match ended {
            Ok(()) => outcome.passed.push(about),
            Err(error) => outcome.failed.push((about, format!("{error:#}"))),
        }
    }
    Ok(outcome)
}

async fn run_row(world: &World, namespace: &str, name: &str, row: &Row) -> anyhow::Result<()> {
    let collection = row.kind.collection(namespace);
    let path = format!("{collection}/{name}");
    if let Some(more) = &row.object {
        let mut body = row.kind.body();
        merge(&mut body, more);
        body["metadata"]["name"] = json!(name);
        // The object alone has this label, so the collection has one member.
        body["metadata"]["labels"]["row"] = json!(name);
        world.send(Method::POST, &collection, Some(&body)).await.context("creating the object")?;
    }
    for (number, ask) in row.asks.iter().enumerate() {
        let before = world.get(&path).await.unwrap_or_default();
        let target = if ask.collection { format!("{collection}?labelSelector=row%3D{name}") } else { path.clone() };
        let body = ask.body.as_ref().map(|body| fill(body, name, before.as_ref().unwrap_or(&Value::Null)));
        let answer = world.ask(ask.method.clone(), &target, ask.content_type, body.as_ref()).await?;
        let text = String::from_utf8_lossy(&answer.body);
        let said: Value = serde_json::from_str(&text).unwrap_or(Value::Null);
        let at = || format!("request {}: {} is answered {} {text}", number + 1, ask.method, answer.status);
        ensure!(answer.status.as_u16() == ask.code, "{}, not {} {}", at(), ask.code, ask.reason);
        let reason = if answer.status.is_success() { "" } else { said["reason"].as_str().unwrap_or_default() };
        ensure!(reason == ask.reason, "{}, not for the reason {:?}", at(), ask.reason);
        if let Some(kind) = ask.answers {
            ensure!(said["kind"] == kind, "{}, not with a {kind}", at());
        }
        let after = world.get(&path).await.unwrap_or_default();
        check(&ask.then, before.as_ref(), after.as_ref()).with_context(at)?;
    }
    Ok(())
}

fn check(then: &Then, before: Option<&Value>, after: Option<&Value>) -> anyhow::Result<()> {
    if let Some(there) = then.there {
        ensure!(after.is_some() == there, "afterwards there is {after:?}");
    }
    let nothing = Value::Null;
    let (old, new) = (before.map_or(&nothing, |of| &of["metadata"]), after.map_or(&nothing, |of| &of["metadata"]));
    if let Some(finalizers) = &then.finalizers {
        let has = new["finalizers"].as_array().map(Vec::as_slice).unwrap_or_default();
        ensure!(has == finalizers.as_slice(), "the finalizers are {has:?}, not {finalizers:?}");
    }
    if let Some(grace) = then.grace {
        let has = new["deletionGracePeriodSeconds"].as_i64();
        ensure!(has == grace, "the grace is {has:?}, not {grace:?}");
    }
    if let Some(mark) = then.mark {
        let (was, is) = (old["deletionTimestamp"].as_str(), new["deletionTimestamp"].as_str());
        let holds = match mark {
            Mark::None => is.is_none(),
            Mark::New => was.is_none() && is.is_some(),
            Mark::Same => was.is_some() && was == is,
            // All versions have one form, so they can be compared as text.
            Mark::Earlier => is.is_some() && is < was,
        };
        ensure!(holds, "the deletion mark was {was:?} and is {is:?}: not {mark:?}");
    }
    if let Some(growth) = then.generation {
        let (was, is) = (old["generation"].as_i64(), new["generation"].as_i64());
        ensure!(is == was.map(|was| was + growth), "the generation was {was:?} and is {is:?}");
    }
    if let Some(owners) = &then.owners {
        ensure!(new["ownerReferences"] == *owners, "the references are {}, not {owners}", new["ownerReferences"]);
    }
    if let Some(written) = then.written {
        let (was, is) = (&old["resourceVersion"], &new["resourceVersion"]);
        ensure!((was != is) == written, "the resourceVersion was {was} and is {is}");
    }
    Ok(())
}

/// Returns the body with the object's own name, uid and version.
fn fill(body: &Value, name: &str, object: &Value) -> Value {
    match body {
        Value::String(word) => match word.as_str() {
            "$uid" => object["metadata"]["uid"].clone(),
            "$version" => object["metadata"]["resourceVersion"].clone(),
            "$name" => json!(name),
            _ => body.clone(),
        },
        Value::Array(items) => items.iter().map(|item| fill(item, name, object)).collect(),
        Value::Object(fields) => {
            Value::Object(fields.iter().map(|(field, value)| (field.clone(), fill(value, name, object))).collect())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => body.clone(),
    }
}

/// A pod with a node, so its deletion has a grace period.
fn scheduled() -> Value {
    json!({ "spec": { "nodeName": "nowhere" } })
}

/// The rows of one id, during their construction.
struct Table {
    id: &'static str,
    rows: Vec<Row>,
}

impl Table {
    fn new(id: &'static str) -> Table {
        Table { id, rows: Vec::new() }
    }

    fn row(&mut self, about: impl Into<String>, kind: Kind, object: Value, asks: impl IntoIterator<Item = Ask>) {
        let asks = asks.into_iter().collect();
        self.rows.push(Row { id: self.id, about: about.into(), kind, object: Some(object), asks });
    }

    fn pod(&mut self, about: impl Into<String>, object: Value, asks: impl IntoIterator<Item = Ask>) {
        self.row(about, POD, object, asks);
    }
}
