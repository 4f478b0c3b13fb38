//! Answers as JSON and YAML: the messages of the gRPC API in protobuf's own JSON form, with `apiVersion`, `kind` and
//! `status`.

use super::ending::Problem;
use anyhow::Context as _;
use clap::ValueEnum;
use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage};
use runtime::visible;
use serde_json::{Map, Value, json};

#[cfg(test)]
mod tests;

const API_VERSION: &str = "ownergraph.dev/v1alpha1";
const GRAPH: &str = "ownergraph.graph.v1beta1";

/// The kind of a document. `docs/queries.md` describes the content of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "PascalCase")]
pub(crate) enum Kind {
    Budget,
    CascadeList,
    CascadeProgress,
    CollectorStatus,
    CycleList,
    DecisionEvent,
    DecisionGap,
    DecisionList,
    DeletionPlan,
    DemoSummary,
    Explanation,
    Graph,
    GuardList,
    Lineage,
    OrphanCountList,
    OrphanList,
    Owners,
    ParityReport,
    Path,
    Pause,
    Protection,
    QueueList,
    ReferenceList,
    Replay,
    StuckList,
    Tree,
    TreeChange,
    Version,
}

/// A document without its list of missing information.
#[derive(Clone, Debug)]
pub(crate) struct Document(Map<String, Value>);

impl Document {
    pub(crate) fn new(kind: Kind) -> Document {
        let name = kind.to_possible_value().map(|value| value.get_name().to_owned());
        Document(Map::from_iter([
            ("apiVersion".to_owned(), Value::from(API_VERSION)),
            ("kind".to_owned(), Value::from(name)),
        ]))
    }

    /// A list document of items of one kind.
    pub(crate) fn list(kind: Kind, items: Value) -> Document {
        Document::new(kind).with("items", items)
    }

    pub(super) fn with(mut self, field: &str, value: Value) -> Document {
        self.0.insert(field.to_owned(), value);
        self
    }

    /// Adds all fields of a message to the existing ones.
    pub(crate) fn with_fields(mut self, message: Value) -> Document {
        if let Value::Object(fields) = message {
            self.0.extend(fields);
        }
        self
    }

    /// The whole document. Its status includes the list of missing information.
    pub(super) fn with_incomplete(mut self, incomplete: &[String]) -> Value {
        let status = self.0.entry("status").or_insert_with(|| json!({}));
        status["incomplete"] = json!(incomplete);
        Value::Object(self.0)
    }

    /// The document as an item of a list.
    pub(super) fn item(self) -> Value {
        Value::Object(self.0)
    }
}

/// The names and types of the messages.
#[derive(Debug)]
pub(super) struct Schema(DescriptorPool);

impl Schema {
    pub(super) fn load() -> Result<Schema, Problem> {
        let pool = DescriptorPool::decode(proto::FILE_DESCRIPTOR_SET);
        Ok(Schema(pool.context("the descriptors of this build cannot be read")?))
    }

    /// All calls: the full name of the service, and the name of the method.
    #[cfg(test)]
    pub(super) fn calls(&self) -> Vec<(String, String)> {
        let methods = |service: prost_reflect::ServiceDescriptor| {
            let name = service.full_name().to_owned();
            service.methods().map(|method| (name.clone(), method.name().to_owned())).collect::<Vec<_>>()
        };
        self.0.services().flat_map(methods).collect()
    }

    /// Converts a message of the graph package, by its name: `Node`, `PreviewDeletionResponse.Entry`.
    pub(super) fn value(&self, name: &str, message: &impl Message) -> Result<Value, Problem> {
        self.message(&format!("{GRAPH}.{name}"), message)
    }

    /// Converts a message, by its full name.
    pub(super) fn message(&self, name: &str, message: &impl Message) -> Result<Value, Problem> {
        let described = self.0.get_message_by_name(name);
        let described = described.with_context(|| format!("this build has no descriptor of the message {name}"))?;
        let message = DynamicMessage::decode(described, message.encode_to_vec().as_slice());
        let message = message.with_context(|| format!("the message {name} does not match its descriptor"))?;
        Ok(serde_json::to_value(message).with_context(|| format!("the message {name} has no JSON form"))?)
    }

    pub(super) fn values<'m, M: Message + 'm>(
        &self,
        name: &str,
        messages: impl IntoIterator<Item = &'m M>,
    ) -> Result<Value, Problem> {
        messages
            .into_iter()
            .map(|message| self.value(name, message))
            .collect::<Result<Vec<Value>, _>>()
            .map(Value::from)
    }

    /// Converts messages of the graph package, one a line.
    pub(super) fn lines<'m, M: Message + 'm>(
        &self,
        name: &str,
        messages: impl IntoIterator<Item = &'m M>,
    ) -> Result<String, Problem> {
        messages.into_iter().map(|message| Ok(line(&self.value(name, message)?))).collect()
    }
}

pub(super) fn json(value: &Value) -> Result<String, Problem> {
    let text = serde_json::to_string_pretty(value).context("the answer has no JSON form")?;
    Ok(format!("{}\n", visible::json(&text)))
}

pub(super) fn yaml(value: &Value) -> Result<String, Problem> {
    let text = serde_saphyr::to_string(value).context("the answer has no YAML form")?;
    // YAML has styles that do not escape such characters, so the output is JSON, which is valid YAML.
    if text.chars().all(|character| character == '\n' || visible::is_harmless(character)) {
        Ok(text)
    } else {
        json(value)
    }
}

/// The value on one line.
pub(super) fn line(value: &Value) -> String {
    format!("{}\n", visible::json(&value.to_string()))
}
