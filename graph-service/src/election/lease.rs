//! The Lease object over HTTP.

use engine::elector::{CallId, Input, LeaseRecord, LeaseWrite, PutError};
use engine::object::ResourceVersion;
use http::{Method, StatusCode};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube_api::path::collection_path;
use kube_api::{Answer, NotFound, call, classify_not_found, media, request};
use serde_json::{Value, json};
use std::future::Future;
use std::time::Duration;

#[cfg(test)]
mod tests;

pub(super) const GROUP: &str = "coordination.k8s.io";
pub(super) const RESOURCE: &str = "leases";
/// Maximum size of a Lease. A Lease of this service has less than 1 KiB.
const ANSWER_MAX: usize = 256 * 1024;
/// Annotation with the address of the holder, as a hint for clients.
pub(super) const ENDPOINT_ANNOTATION: &str = "ownergraph.dev/endpoint";

/// The location of the Lease, and its last state.
pub(super) struct Access {
    client: Client,
    namespace: String,
    name: String,
    endpoint: String,
    within: Duration,
    /// The whole object as last read or written. A write keeps the fields that other clients have set.
    last: Option<Value>,
}

/// The result of one call.
#[derive(Debug)]
pub(super) struct Answered {
    write: bool,
    result: Result<Found, Failure>,
}

#[derive(Debug)]
enum Found {
    Lease(Value),
    Nothing,
}

#[derive(Debug)]
enum Failure {
    /// The write certainly had no effect.
    Conflict,
    Other(String),
}

impl Access {
    pub(super) fn new(client: Client, namespace: &str, name: &str, endpoint: String, within: Duration) -> Access {
        Access { client, namespace: namespace.to_owned(), name: name.to_owned(), endpoint, within, last: None }
    }

    /// The address of this replica.
    pub(super) fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// The address of `holder` according to the Lease; empty if unknown.
    pub(super) fn endpoint_of(&self, holder: &str) -> String {
        let lease = self.last.as_ref().filter(|lease| lease["spec"]["holderIdentity"] == holder);
        let endpoint = lease.and_then(|lease| lease["metadata"]["annotations"][ENDPOINT_ANNOTATION].as_str());
        endpoint.unwrap_or_default().to_owned()
    }

    /// Reads or writes the Lease.
    pub(super) fn call(&self, write: Option<LeaseWrite>) -> impl Future<Output = Answered> + Send + use<> {
        let collection = collection_path(GROUP, "v1", RESOURCE, &self.namespace);
        let (method, uri, body) = match &write {
            None => (Method::GET, format!("{collection}/{}", self.name), Value::Null),
            Some(write) => {
                let body = self.body(write);
                match write.resource_version {
                    None => (Method::POST, collection, body),
                    Some(_) => (Method::PUT, format!("{collection}/{}", self.name), body),
                }
            }
        };
        let request = request(method.clone(), &uri, media::JSON, &body);
        let (client, name, within) = (self.client.clone(), self.name.clone(), self.within);
        async move {
            let result = match request {
                Err(error) => Err(Failure::Other(format!("invalid namespace or name of the Lease: {error}"))),
                Ok(request) => match call(&client, request, ANSWER_MAX, within).await {
                    Err(error) => Err(Failure::Other(error.to_string())),
                    Ok(answer) => read(&answer, &method, &name),
                },
            };
            Answered { write: write.is_some(), result }
        }
    }

    /// Converts an answer for the engine, and keeps the current state of the Lease.
    pub(super) fn learn(&mut self, call: CallId, answered: Answered) -> Input {
        let record = match answered.result {
            Ok(Found::Lease(lease)) => match record(&lease) {
                Some(record) => {
                    self.last = Some(lease);
                    Ok(Some(record))
                }
                None => Err(Failure::Other("the answer of the API server is not a Lease".to_owned())),
            },
            Ok(Found::Nothing) => {
                self.last = None;
                Ok(None)
            }
            Err(failure) => Err(failure),
        };
        if answered.write {
            let answer = match record {
                Ok(Some(record)) => Ok(record),
                // The Lease was deleted in the meantime.
                Ok(None) | Err(Failure::Conflict) => Err(PutError::Conflict),
                Err(Failure::Other(why)) => Err(PutError::Failed(why)),
            };
            return Input::Put { call, answer };
        }
        let answer = record.map_err(|failure| match failure {
            Failure::Conflict => "the API server answers a read with a conflict".to_owned(),
            Failure::Other(why) => why,
        });
        Input::Got { call, answer }
    }

    fn body(&self, write: &LeaseWrite) -> Value {
        let mut lease = match (&self.last, &write.resource_version) {
            (Some(last), Some(version)) if last["metadata"]["resourceVersion"] == version.to_string() => last.clone(),
            _ => json!({"metadata": {"name": self.name, "namespace": self.namespace}, "spec": {}}),
        };
        lease["apiVersion"] = json!(format!("{GROUP}/v1"));
        lease["kind"] = json!("Lease");
        if let Some(version) = &write.resource_version {
            lease["metadata"]["resourceVersion"] = json!(version.to_string());
        }
        if !lease["metadata"]["annotations"].is_object() {
            lease["metadata"]["annotations"] = json!({});
        }
        let endpoint = if write.holder.is_empty() { "" } else { &self.endpoint };
        lease["metadata"]["annotations"][ENDPOINT_ANNOTATION] = json!(endpoint);
        let now = json!(MicroTime(Timestamp::now()));
        let spec = &mut lease["spec"];
        spec["holderIdentity"] = json!(write.holder);
        spec["leaseTransitions"] = json!(write.transitions);
        spec["leaseDurationSeconds"] = json!(write.duration.as_secs().max(1));
        if write.acquire {
            spec["acquireTime"] = now.clone();
        }
        spec["renewTime"] = now;
        lease
    }
}

fn read(answer: &Answer, method: &Method, name: &str) -> Result<Found, Failure> {
    if answer.status.is_success() {
        let lease = serde_json::from_slice(&answer.body);
        return lease
            .map(Found::Lease)
            .map_err(|_| Failure::Other("the answer of the API server is not JSON".to_owned()));
    }
    let creates = method == Method::POST;
    if answer.status == StatusCode::CONFLICT {
        return Err(Failure::Conflict);
    }
    if !creates && classify_not_found(answer, GROUP, RESOURCE, name) == Some(NotFound::ThisObject) {
        return Ok(Found::Nothing);
    }
    Err(Failure::Other(answer.refusal()))
}

fn record(lease: &Value) -> Option<LeaseRecord> {
    let (metadata, spec) = (&lease["metadata"], &lease["spec"]);
    // The next write changes this object in place, so its `spec` must be an object or null.
    if !(spec.is_object() || spec.is_null()) {
        return None;
    }
    let text = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    Some(LeaseRecord {
        uid: text(&metadata["uid"])?.into(),
        resource_version: ResourceVersion::parse(&text(&metadata["resourceVersion"])?),
        holder: text(&spec["holderIdentity"]).unwrap_or_default(),
        transitions: spec["leaseTransitions"].as_u64().unwrap_or(0),
        duration: Duration::from_secs(spec["leaseDurationSeconds"].as_u64().unwrap_or(0)),
        renewed: text(&spec["renewTime"]).unwrap_or_default(),
    })
}
