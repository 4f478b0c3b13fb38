//! The namespace controller's own conditions of a terminating namespace: APIs that it cannot reach, remaining contents,
//! and the finalizers that keep them.

use crate::kubectl::conditions::get;
use crate::kubectl::session::Session;
use kube_api::path::object_path;
use serde::Serialize;
use serde_json::Value;

/// A condition that holds.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Condition {
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) message: String,
}

/// The conditions of a namespace that say why it still exists, read with the caller's rights.
pub(super) async fn conditions(session: &mut Session, name: &str) -> Vec<Condition> {
    match read(session, name).await {
        Ok(namespace) => of(&namespace),
        Err(why) => {
            session.missed(format!("the conditions of namespace {name} cannot be read: {why}"));
            Vec::new()
        }
    }
}

async fn read(session: &Session, name: &str) -> Result<Value, String> {
    let path = object_path("", "v1", "namespaces", "", name).ok_or("this is not a valid namespace name")?;
    // There is no value if the namespace was deleted in the meantime.
    Ok(get(session, &path).await?.unwrap_or_default())
}

fn of(namespace: &Value) -> Vec<Condition> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let all = namespace["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let holds = all.iter().filter(|condition| condition["status"] == "True");
    holds.map(|condition| Condition { kind: text(&condition["type"]), message: text(&condition["message"]) }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn conditions_that_hold_are_told_in_the_controllers_own_words() {
        let condition =
            |kind: &str, status: &str, message: &str| json!({ "type": kind, "status": status, "message": message });
        let conditions = [
            condition("NamespaceDeletionDiscoveryFailure", "False", "All resources successfully discovered"),
            condition("NamespaceFinalizersRemaining", "True", "example.com/f in 1 resource instances"),
        ];
        let found = of(&json!({ "status": { "conditions": conditions } }));
        let expected = Condition {
            kind: "NamespaceFinalizersRemaining".to_owned(),
            message: "example.com/f in 1 resource instances".to_owned(),
        };
        assert_eq!(found, [expected]);
        assert_eq!(of(&Value::Null), []);
    }
}
