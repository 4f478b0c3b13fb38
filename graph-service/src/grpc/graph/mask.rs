//! The read mask of a Node.

use super::status;
use prost::Message as _;
use prost_types::FileDescriptorSet;
use proto::graph::v1beta1::Node;
use std::collections::BTreeSet;
use std::sync::LazyLock;
use tonic::Status;

/// Maximum number of paths of one mask. A Node has fewer fields.
const PATHS_MAX: usize = 64;
/// Fields that only the API server has.
const LABELS: &str = "labels";
const ANNOTATIONS: &str = "annotations";

/// The requested fields. Without any, all fields that the graph keeps.
#[derive(Debug)]
pub(super) struct Mask(Option<BTreeSet<String>>);

impl Mask {
    pub(super) fn of(mask: Option<prost_types::FieldMask>) -> Result<Mask, Status> {
        let paths = mask.map(|mask| mask.paths).filter(|paths| !paths.is_empty());
        let Some(paths) = paths else { return Ok(Mask(None)) };
        if paths.len() > PATHS_MAX {
            return Err(status::bad_field("read_mask", &format!("has {} paths; at most {PATHS_MAX}", paths.len())));
        }
        match paths.iter().find(|path| !is_field(path)) {
            Some(path) => Err(status::bad_field("read_mask", &format!("names {path:?}, which is not a field of Node"))),
            None => Ok(Mask(Some(paths.into_iter().collect()))),
        }
    }

    fn has(&self, field: &str) -> bool {
        self.0.as_ref().is_some_and(|fields| fields.contains(field))
    }

    /// Whether the API server must be asked.
    pub(super) fn asks_the_api_server(&self) -> bool {
        self.has(LABELS) || self.has(ANNOTATIONS)
    }

    /// The requested part of a node.
    pub(super) fn apply(&self, node: Node) -> Node {
        if self.0.is_none() {
            return node;
        }
        let kept = |field| self.has(field);
        // The pattern names every field, so that a new field cannot be forgotten.
        let Node {
            r#ref,
            state,
            resource_version,
            delete_time,
            finalizers,
            owner_references,
            dependent_count,
            blocking_dependent_count,
            deleting_dependents,
            orphaning_dependents,
            evidence,
            collecting,
            owner_count,
            finalizer_count,
            labels,
            annotations,
        } = node;
        Node {
            r#ref: r#ref.filter(|_| kept("ref")),
            state: of(kept("state"), state),
            resource_version: of(kept("resource_version"), resource_version),
            delete_time: delete_time.filter(|_| kept("delete_time")),
            finalizers: of(kept("finalizers"), finalizers),
            owner_references: of(kept("owner_references"), owner_references),
            dependent_count: of(kept("dependent_count"), dependent_count),
            blocking_dependent_count: of(kept("blocking_dependent_count"), blocking_dependent_count),
            deleting_dependents: of(kept("deleting_dependents"), deleting_dependents),
            orphaning_dependents: of(kept("orphaning_dependents"), orphaning_dependents),
            evidence: evidence.filter(|_| kept("evidence")),
            collecting: of(kept("collecting"), collecting),
            owner_count: of(kept("owner_count"), owner_count),
            finalizer_count: of(kept("finalizer_count"), finalizer_count),
            labels: of(kept(LABELS), labels),
            annotations: of(kept(ANNOTATIONS), annotations),
        }
    }
}

fn of<T: Default>(is_kept: bool, value: T) -> T {
    if is_kept { value } else { T::default() }
}

/// Whether the descriptors of the API have this field.
fn is_field(path: &str) -> bool {
    static FIELDS: LazyLock<BTreeSet<String>> = LazyLock::new(|| {
        let set = FileDescriptorSet::decode(proto::FILE_DESCRIPTOR_SET).unwrap_or_default();
        let messages = set.file.iter().filter(|file| file.package() == "ownergraph.graph.v1beta1");
        let node = messages.flat_map(|file| &file.message_type).filter(|message| message.name() == "Node");
        node.flat_map(|node| &node.field).map(|field| field.name().to_owned()).collect()
    });
    FIELDS.contains(path)
}
