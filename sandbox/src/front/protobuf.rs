//! Decodes objects in protobuf: those that `kubectl create KIND NAME` makes from flags.
//!
//! The tables below hold the fields that those commands set. A body with any other field is refused, so that no object
//! is stored with a part missing.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Map, Value};

use crate::model::{ApiError, Reason};

/// The prefix of every protobuf object of Kubernetes, before its envelope.
pub(crate) const MAGIC: &[u8] = b"k8s\0";
const DEPTH_MAX: usize = 32;

/// How a field is read. Fields of Go values are always on the wire, and zero means unset. Fields of Go pointers are on
/// the wire only if they are set.
#[derive(Clone, Copy)]
enum Field {
    Text,
    Number,
    PointerNumber,
    PointerFlag,
    Texts,
    TextMap,
    BytesMap,
    Message(&'static [Row]),
    Messages(&'static [Row]),
    /// `IntOrString`: a type, a number and a text.
    NumberOrText,
    /// The server sets it.
    Ignored,
}

type Row = (u64, &'static str, Field);

const REFERENCE: &[Row] = &[
    (1, "kind", Field::Text),
    (3, "name", Field::Text),
    (4, "uid", Field::Text),
    (5, "apiVersion", Field::Text),
    (6, "controller", Field::PointerFlag),
    (7, "blockOwnerDeletion", Field::PointerFlag),
];
const METADATA: &[Row] = &[
    (1, "name", Field::Text),
    (2, "generateName", Field::Text),
    (3, "namespace", Field::Text),
    (8, "creationTimestamp", Field::Ignored),
    (11, "labels", Field::TextMap),
    (12, "annotations", Field::TextMap),
    (13, "ownerReferences", Field::Messages(REFERENCE)),
    (14, "finalizers", Field::Texts),
    (17, "managedFields", Field::Ignored),
];
const NAMED: &[Row] = &[(1, "name", Field::Text)];
const CONFIG_MAP: &[Row] = &[
    (1, "metadata", Field::Message(METADATA)),
    (2, "data", Field::TextMap),
    (3, "binaryData", Field::BytesMap),
    (4, "immutable", Field::PointerFlag),
];
const SECRET: &[Row] = &[
    (1, "metadata", Field::Message(METADATA)),
    (2, "data", Field::BytesMap),
    (3, "type", Field::Text),
    (4, "stringData", Field::TextMap),
    (5, "immutable", Field::PointerFlag),
];
const NAMESPACE: &[Row] =
    &[(1, "metadata", Field::Message(METADATA)), (2, "spec", Field::Ignored), (3, "status", Field::Ignored)];
const SERVICE_ACCOUNT: &[Row] = &[
    (1, "metadata", Field::Message(METADATA)),
    (2, "secrets", Field::Messages(NAMED)),
    (3, "imagePullSecrets", Field::Messages(NAMED)),
];
const SERVICE_PORT: &[Row] = &[
    (1, "name", Field::Text),
    (2, "protocol", Field::Text),
    (3, "port", Field::Number),
    (4, "targetPort", Field::NumberOrText),
    (5, "nodePort", Field::Number),
];
const SERVICE_SPEC: &[Row] = &[
    (1, "ports", Field::Messages(SERVICE_PORT)),
    (2, "selector", Field::TextMap),
    (3, "clusterIP", Field::Text),
    (4, "type", Field::Text),
    (10, "externalName", Field::Text),
];
const SERVICE: &[Row] = &[
    (1, "metadata", Field::Message(METADATA)),
    (2, "spec", Field::Message(SERVICE_SPEC)),
    (3, "status", Field::Ignored),
];
const CONTAINER_PORT: &[Row] = &[
    (1, "name", Field::Text),
    (2, "hostPort", Field::Number),
    (3, "containerPort", Field::Number),
    (4, "protocol", Field::Text),
];
const VARIABLE: &[Row] = &[(1, "name", Field::Text), (2, "value", Field::Text)];
const CONTAINER: &[Row] = &[
    (1, "name", Field::Text),
    (2, "image", Field::Text),
    (3, "command", Field::Texts),
    (4, "args", Field::Texts),
    (5, "workingDir", Field::Text),
    (6, "ports", Field::Messages(CONTAINER_PORT)),
    (7, "env", Field::Messages(VARIABLE)),
    (14, "imagePullPolicy", Field::Text),
];
const POD_SPEC: &[Row] = &[
    (2, "containers", Field::Messages(CONTAINER)),
    (3, "restartPolicy", Field::Text),
    (4, "terminationGracePeriodSeconds", Field::PointerNumber),
    (7, "nodeSelector", Field::TextMap),
    (8, "serviceAccountName", Field::Text),
];
const TEMPLATE: &[Row] = &[(1, "metadata", Field::Message(METADATA)), (2, "spec", Field::Message(POD_SPEC))];
const SELECTOR: &[Row] = &[(1, "matchLabels", Field::TextMap)];
const DEPLOYMENT_SPEC: &[Row] = &[
    (1, "replicas", Field::PointerNumber),
    (2, "selector", Field::Message(SELECTOR)),
    (3, "template", Field::Message(TEMPLATE)),
];
const DEPLOYMENT: &[Row] = &[
    (1, "metadata", Field::Message(METADATA)),
    (2, "spec", Field::Message(DEPLOYMENT_SPEC)),
    (3, "status", Field::Ignored),
];
const JOB_SPEC: &[Row] = &[
    (1, "parallelism", Field::PointerNumber),
    (2, "completions", Field::PointerNumber),
    (6, "template", Field::Message(TEMPLATE)),
    (7, "backoffLimit", Field::PointerNumber),
];
const JOB: &[Row] =
    &[(1, "metadata", Field::Message(METADATA)), (2, "spec", Field::Message(JOB_SPEC)), (3, "status", Field::Ignored)];
const JOB_TEMPLATE: &[Row] = &[(1, "metadata", Field::Message(METADATA)), (2, "spec", Field::Message(JOB_SPEC))];
const CRON_JOB_SPEC: &[Row] = &[
    (1, "schedule", Field::Text),
    (3, "concurrencyPolicy", Field::Text),
    (4, "suspend", Field::PointerFlag),
    (5, "jobTemplate", Field::Message(JOB_TEMPLATE)),
];
const CRON_JOB: &[Row] = &[
    (1, "metadata", Field::Message(METADATA)),
    (2, "spec", Field::Message(CRON_JOB_SPEC)),
    (3, "status", Field::Ignored),
];
const RULE: &[Row] = &[
    (1, "verbs", Field::Texts),
    (2, "apiGroups", Field::Texts),
    (3, "resources", Field::Texts),
    (4, "resourceNames", Field::Texts),
    (5, "nonResourceURLs", Field::Texts),
];
const ROLE: &[Row] = &[(1, "metadata", Field::Message(METADATA)), (2, "rules", Field::Messages(RULE))];
const SUBJECT: &[Row] =
    &[(1, "kind", Field::Text), (2, "apiGroup", Field::Text), (3, "name", Field::Text), (4, "namespace", Field::Text)];
const ROLE_REFERENCE: &[Row] = &[(1, "apiGroup", Field::Text), (2, "kind", Field::Text), (3, "name", Field::Text)];
const ROLE_BINDING: &[Row] = &[
    (1, "metadata", Field::Message(METADATA)),
    (2, "subjects", Field::Messages(SUBJECT)),
    (3, "roleRef", Field::Message(ROLE_REFERENCE)),
];

fn table(kind: &str) -> Option<&'static [Row]> {
    match kind {
        "ConfigMap" => Some(CONFIG_MAP),
        "Secret" => Some(SECRET),
        "Namespace" => Some(NAMESPACE),
        "ServiceAccount" => Some(SERVICE_ACCOUNT),
        "Service" => Some(SERVICE),
        "Deployment" => Some(DEPLOYMENT),
        "Job" => Some(JOB),
        "CronJob" => Some(CRON_JOB),
        "Role" | "ClusterRole" => Some(ROLE),
        "RoleBinding" | "ClusterRoleBinding" => Some(ROLE_BINDING),
        _ => None,
    }
}

/// Reads an object in its envelope.
///
/// # Errors
/// 400 for invalid bytes, 415 for kinds and fields outside of the tables.
pub(crate) fn decode(body: &[u8]) -> Result<Value, ApiError> {
    let malformed = || ApiError { reason: Reason::BadRequest, ..unsupported("the body is no protobuf of Kubernetes") };
    let envelope = fields(body.strip_prefix(MAGIC).ok_or_else(malformed)?).ok_or_else(malformed)?;
    let bytes = |fields: &[(u64, Wire<'_>)], number: u64| -> Vec<u8> {
        let found = fields.iter().find(|(known, _)| *known == number);
        found.and_then(|(_, wire)| wire.bytes()).unwrap_or_default().to_vec()
    };
    let type_meta = bytes(&envelope, 1);
    let type_meta = fields(&type_meta).ok_or_else(malformed)?;
    let text = |number: u64| String::from_utf8(bytes(&type_meta, number)).map_err(|_| malformed());
    let (api_version, kind) = (text(1)?, text(2)?);
    let rows = table(&kind)
        .ok_or_else(|| unsupported(&format!("the sandbox reads {kind} as JSON or YAML only, not as protobuf")))?;
    let mut object = message(rows, &bytes(&envelope, 2), 0)?;
    object.insert("apiVersion".to_owned(), Value::from(api_version));
    object.insert("kind".to_owned(), Value::from(kind));
    Ok(Value::Object(object))
}

fn unsupported(message: &str) -> ApiError {
    ApiError { reason: Reason::UnsupportedMediaType, message: message.to_owned(), details: Box::default() }
}

fn malformed() -> ApiError {
    ApiError { reason: Reason::BadRequest, ..unsupported("the body is malformed protobuf") }
}

/// A value as it is on the wire.
#[derive(Clone, Copy)]
pub(crate) enum Wire<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

impl<'a> Wire<'a> {
    pub(crate) fn bytes(self) -> Option<&'a [u8]> {
        match self {
            Self::Bytes(bytes) => Some(bytes),
            Self::Number(_) => None,
        }
    }

    fn text(self) -> Result<String, ApiError> {
        let bytes = self.bytes().ok_or_else(malformed)?;
        String::from_utf8(bytes.to_vec()).map_err(|_| malformed())
    }

    /// Whether the message has only zeros and empty texts, at any depth.
    fn is_blank(self, depth: usize) -> bool {
        match self {
            Self::Number(number) => number == 0,
            Self::Bytes(bytes) => {
                let nested = || fields(bytes).filter(|_| depth < DEPTH_MAX);
                bytes.is_empty() || nested().is_some_and(|all| all.iter().all(|(_, wire)| wire.is_blank(depth + 1)))
            }
        }
    }
}

/// The fields of a message in order; `None` for invalid bytes.
pub(crate) fn fields(mut bytes: &[u8]) -> Option<Vec<(u64, Wire<'_>)>> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes)?;
        let wire = match tag & 7 {
            0 => Wire::Number(varint(&mut bytes)?),
            2 => {
                let length = usize::try_from(varint(&mut bytes)?).ok()?;
                let (value, rest) = bytes.split_at_checked(length)?;
                bytes = rest;
                Wire::Bytes(value)
            }
            _ => return None,
        };
        found.push((tag >> 3, wire));
    }
    Some(found)
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

fn message(rows: &[Row], bytes: &[u8], depth: usize) -> Result<Map<String, Value>, ApiError> {
    let mut object = Map::new();
    for (number, wire) in fields(bytes).filter(|_| depth < DEPTH_MAX).ok_or_else(malformed)? {
        let Some((_, name, field)) = rows.iter().find(|(known, ..)| *known == number) else {
            if wire.is_blank(depth) {
                continue;
            }
            return Err(unsupported(&format!(
                "the sandbox does not read field {number} of this object as protobuf; send JSON or YAML"
            )));
        };
        read(&mut object, name, *field, wire, depth)?;
    }
    Ok(object)
}

/// Reads one occurrence of a field into the object.
fn read(
    object: &mut Map<String, Value>,
    name: &str,
    field: Field,
    wire: Wire<'_>,
    depth: usize,
) -> Result<(), ApiError> {
    let number = || match wire {
        // Negative numbers are in two's complement.
        Wire::Number(number) => Ok(number.cast_signed()),
        Wire::Bytes(_) => Err(malformed()),
    };
    match field {
        Field::Ignored => {}
        Field::Text => {
            let text = wire.text()?;
            if !text.is_empty() {
                object.insert(name.to_owned(), Value::from(text));
            }
        }
        Field::Number => {
            if number()? != 0 {
                object.insert(name.to_owned(), Value::from(number()?));
            }
        }
        Field::PointerNumber => {
            object.insert(name.to_owned(), Value::from(number()?));
        }
        Field::PointerFlag => {
            object.insert(name.to_owned(), Value::from(number()? != 0));
        }
        Field::Texts => push(object, name, Value::from(wire.text()?)),
        Field::Message(rows) => {
            let inner = message(rows, wire.bytes().ok_or_else(malformed)?, depth + 1)?;
            object.insert(name.to_owned(), Value::Object(inner));
        }
        Field::Messages(rows) => {
            let inner = message(rows, wire.bytes().ok_or_else(malformed)?, depth + 1)?;
            push(object, name, Value::Object(inner));
        }
        Field::TextMap | Field::BytesMap => {
            let entry = fields(wire.bytes().ok_or_else(malformed)?).ok_or_else(malformed)?;
            let part = |wanted: u64| entry.iter().find(|(number, _)| *number == wanted).map(|(_, wire)| *wire);
            let empty = Wire::Bytes(&[]);
            let key = part(1).unwrap_or(empty).text()?;
            let value = part(2).unwrap_or(empty);
            let encoded = matches!(field, Field::BytesMap);
            let value =
                if encoded { BASE64_STANDARD.encode(value.bytes().ok_or_else(malformed)?) } else { value.text()? };
            let map = object.entry(name).or_insert_with(|| Value::Object(Map::new()));
            if let Some(map) = map.as_object_mut() {
                map.insert(key, Value::from(value));
            }
        }
        Field::NumberOrText => {
            let parts = message(
                &[(1, "type", Field::Number), (2, "number", Field::PointerNumber), (3, "text", Field::Text)],
                wire.bytes().ok_or_else(malformed)?,
                depth + 1,
            )?;
            let chosen = if parts.contains_key("type") { "text" } else { "number" };
            object.insert(name.to_owned(), parts.get(chosen).cloned().unwrap_or_else(|| Value::from(0)));
        }
    }
    Ok(())
}

fn push(object: &mut Map<String, Value>, name: &str, value: Value) {
    let list = object.entry(name).or_insert_with(|| Value::Array(Vec::new()));
    if let Some(list) = list.as_array_mut() {
        list.push(value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A field of bytes.
    fn bytes(number: u8, value: &[u8]) -> Vec<u8> {
        let mut field = vec![number << 3 | 2, u8::try_from(value.len()).unwrap()];
        field.extend_from_slice(value);
        field
    }

    fn envelope(kind: &str, raw: &[u8]) -> Vec<u8> {
        let type_meta = [bytes(1, b"v1"), bytes(2, kind.as_bytes())].concat();
        [MAGIC.to_vec(), bytes(1, &type_meta), bytes(2, raw)].concat()
    }

    #[test]
    fn objects_are_read() {
        let metadata = [bytes(1, b"a"), bytes(3, b""), bytes(8, b"\x08\x00")].concat();
        let entry = [bytes(1, b"k"), bytes(2, b"hello")].concat();
        let raw = [bytes(1, &metadata), bytes(2, &entry), bytes(3, b"Opaque"), vec![5 << 3, 1]].concat();
        let expected = serde_json::json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "a" },
            "data": { "k": "aGVsbG8=" }, "type": "Opaque", "immutable": true,
        });
        assert_eq!(decode(&envelope("Secret", &raw)), Ok(expected));
    }

    #[test]
    fn nothing_is_lost_in_silence() {
        let code = |body: &[u8]| decode(body).unwrap_err().code();
        assert_eq!(code(b"{}"), 400);
        assert_eq!(code(b"k8s\0\xff"), 400);
        assert_eq!(code(&envelope("Node", b"")), 415);
        assert_eq!(code(&envelope("ConfigMap", &bytes(9, b"x"))), 415);
        assert!(decode(&envelope("ConfigMap", &bytes(9, &bytes(1, b"")))).is_ok(), "blank fields say nothing");
        let deep = (0..100).fold(Vec::new(), |inner, _| bytes(1, &inner[..inner.len().min(100)]));
        assert!(decode(&envelope("ConfigMap", &deep)).is_err());
    }
}
