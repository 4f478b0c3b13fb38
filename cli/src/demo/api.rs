//! The requests of the demo itself to the API server. It creates and deletes objects like any user.

use crate::kubectl::flags::Cascade;
use anyhow::{Context as _, ensure};
use http::Method;
use kube::Client;
use kube_api::path::collection_path;
use kube_api::{Answer, call, media, request};
use serde_json::{Value, json};
use std::fmt;
use std::time::Duration;

const ANSWER_MAX_BYTES: usize = 1024 * 1024;
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// The names and the path of a kind.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Kind {
    api_version: &'static str,
    kind: &'static str,
    plural: &'static str,
}

const fn kind(api_version: &'static str, kind: &'static str, plural: &'static str) -> Kind {
    Kind { api_version, kind, plural }
}

pub(super) const NAMESPACE: Kind = kind("v1", "Namespace", "namespaces");
pub(super) const CONFIG_MAP: Kind = kind("v1", "ConfigMap", "configmaps");
pub(super) const SECRET: Kind = kind("v1", "Secret", "secrets");
pub(super) const POD: Kind = kind("v1", "Pod", "pods");
pub(super) const CLAIM: Kind = kind("v1", "PersistentVolumeClaim", "persistentvolumeclaims");
pub(super) const DEPLOYMENT: Kind = kind("apps/v1", "Deployment", "deployments");
pub(super) const REPLICA_SET: Kind = kind("apps/v1", "ReplicaSet", "replicasets");
pub(super) const DEFINITION: Kind =
    kind("apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions");
pub(super) const DATABASE: Kind = kind("shop.example.com/v1", "Database", "databases");

impl Kind {
    fn path(&self, namespace: &str) -> String {
        let (group, version) = self.api_version.rsplit_once('/').unwrap_or(("", self.api_version));
        collection_path(group, version, self.plural, namespace)
    }
}

/// An object that the demo has created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Thing {
    pub(super) kind: &'static Kind,
    /// Empty for cluster scope.
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) uid: String,
}

impl Thing {
    /// A reference to the object as an owner. A foreground deletion of the owner waits for the dependent.
    pub(super) fn as_owner(&self) -> Value {
        json!({
            "apiVersion": self.kind.api_version, "kind": self.kind.kind, "name": self.name, "uid": self.uid,
            "blockOwnerDeletion": true,
        })
    }
}

impl fmt::Display for Thing {
    /// Uses the engine's format.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.kind.kind)?;
        if !self.namespace.is_empty() {
            write!(f, "{}/", self.namespace)?;
        }
        f.write_str(&self.name)
    }
}

/// A user of the API server.
#[derive(Clone)]
pub(super) struct Api {
    client: Client,
}

impl Api {
    pub(super) fn new(client: Client) -> Api {
        Api { client }
    }

    /// Creates an object with this name and these owners. `body` has the other fields.
    pub(super) async fn create(
        &self,
        kind: &'static Kind,
        namespace: &str,
        name: &str,
        owners: &[Value],
        mut body: Value,
    ) -> anyhow::Result<Thing> {
        body["apiVersion"] = json!(kind.api_version);
        body["kind"] = json!(kind.kind);
        body["metadata"]["name"] = json!(name);
        if !owners.is_empty() {
            body["metadata"]["ownerReferences"] = json!(owners);
        }
        let what = format!("create {} {namespace}/{name}", kind.kind);
        let answer = self.send(Method::POST, &kind.path(namespace), &body).await.with_context(|| what.clone())?;
        let created: Value = serde_json::from_slice(&answer.body).with_context(|| what.clone())?;
        let uid = created["metadata"]["uid"].as_str().unwrap_or_default();
        ensure!(!uid.is_empty(), "{what}: the answer carries no uid");
        Ok(Thing { kind, namespace: namespace.to_owned(), name: name.to_owned(), uid: uid.to_owned() })
    }

    pub(super) async fn delete(&self, thing: &Thing, policy: Cascade) -> anyhow::Result<()> {
        let path = format!("{}/{}", thing.kind.path(&thing.namespace), thing.name);
        let body = json!({ "apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": policy });
        self.send(Method::DELETE, &path, &body).await.with_context(|| format!("delete {thing}"))?;
        Ok(())
    }

    async fn send(&self, method: Method, path: &str, body: &Value) -> anyhow::Result<Answer> {
        let request = request(method, path, media::JSON, body)?;
        let answer = call(&self.client, request, ANSWER_MAX_BYTES, ANSWER_WITHIN).await?;
        ensure!(answer.status.is_success(), answer.refusal());
        Ok(answer)
    }
}
