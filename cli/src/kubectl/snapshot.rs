//! A file with a graph, for later queries: the kinds that the API server serves, and for each object its identity,
//! owners, finalizers and deletion state. It has no spec, status or data.
//!
//! The file has lines of JSON, compressed with zstd: a [`Header`], and the number of [`Entry`] lines that the header
//! states.

use super::columns::span;
use super::ending::Problem;
use anyhow::{Context as _, bail, ensure};
use kube::core::discovery::v2::APIGroupDiscoveryList;
use proto::graph::v1beta1::{Edge, Node, NodeState};
use proto::r#type::v1beta1::GroupResource;
use proto::r#type::v1beta1::OwnerReference;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, BufWriter, Read, Write};
use std::path::Path;

pub(super) mod server;
#[cfg(test)]
mod tests;

const API_VERSION: &str = "ownergraph.dev/v1alpha1";
const KIND: &str = "Snapshot";
const LEVEL: i32 = 9;
/// Maximum size of a decompressed snapshot, so that a small file cannot fill the memory.
const BYTES_MAX: u64 = 1 << 30;
/// Maximum size of the header, and of an object.
const HEADER_MAX_BYTES: u64 = 64 << 20;
const ENTRY_MAX_BYTES: u64 = 2 << 20;
const OBJECTS_MAX: u64 = 2_000_000;
/// The version of objects whose version the graph does not know.
const NO_VERSION: &str = "1";

/// The exported graph, or the requested part of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Exported {
    pub(super) nodes: Vec<Node>,
    pub(super) edges: Vec<Edge>,
    pub(super) unsynced: Vec<GroupResource>,
    /// Uid of the cluster; empty if unknown.
    pub(super) cluster_uid: String,
}

/// A resource, by group and name.
pub(super) type Resource = (String, String);

/// Data about the whole snapshot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Header {
    pub(super) api_version: String,
    pub(super) kind: String,
    /// RFC 3339.
    pub(super) taken_at: String,
    /// Address of the API server.
    pub(super) server: String,
    pub(super) cluster_uid: String,
    /// The namespace of objects that are named without one.
    pub(super) namespace: String,
    /// Collections that the snapshot contains completely.
    pub(super) collections: BTreeSet<Resource>,
    /// The groups that the API server serves, the core group first.
    pub(super) core: APIGroupDiscoveryList,
    pub(super) groups: APIGroupDiscoveryList,
    /// The number of objects that follow.
    pub(super) objects: u64,
}

/// One object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Entry {
    of: Resource,
    metadata: Value,
}

/// A snapshot in memory.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Snapshot {
    pub(super) header: Header,
    /// The metadata of each object.
    objects: BTreeMap<Resource, Vec<Value>>,
}

impl Snapshot {
    /// Creates a snapshot. `header` has no object count yet.
    pub(super) fn of(mut header: Header, exported: &Exported) -> Snapshot {
        let mut objects: BTreeMap<Resource, Vec<Value>> = BTreeMap::new();
        let there = |node: &&Node| matches!(node.state(), NodeState::Live | NodeState::Terminating);
        let references = long_lists(exported);
        for node in exported.nodes.iter().filter(there) {
            let object = node.r#ref.clone().unwrap_or_default();
            let owners = references.get(object.uid.as_str()).map_or(&[][..], Vec::as_slice);
            objects.entry((object.group, object.resource)).or_default().push(metadata(node, owners));
            header.objects += 1;
        }
        Snapshot { header, objects }
    }

    /// The file is written completely or not at all.
    pub(super) fn write(&self, path: &Path) -> Result<u64, Problem> {
        let unwritten = || format!("{} cannot be written", path.display());
        let part = path.with_added_extension("part");
        let written = self.write_part(&part).and_then(|size| {
            fs::rename(&part, path)?;
            Ok(size)
        });
        if written.is_err() {
            // The partial file is useless; a failure to remove it is harmless.
            let _left = fs::remove_file(&part);
        }
        Ok(written.with_context(unwritten)?)
    }

    fn write_part(&self, path: &Path) -> anyhow::Result<u64> {
        let mut out = zstd::Encoder::new(BufWriter::new(File::create(path)?), LEVEL)?;
        out.include_checksum(true)?;
        let mut line = |value: &str| writeln!(out, "{value}");
        line(&serde_json::to_string(&self.header)?)?;
        for (of, objects) in &self.objects {
            for metadata in objects {
                line(&serde_json::to_string(&Entry { of: of.clone(), metadata: metadata.clone() })?)?;
            }
        }
        out.finish()?.into_inner()?.sync_all()?;
        Ok(fs::metadata(path)?.len())
    }

    pub(super) fn read(path: &Path) -> Result<Snapshot, Problem> {
        let name = path.display();
        let file = File::open(path).with_context(|| format!("{name} cannot be read"))?;
        let lines = zstd::Decoder::new(file).with_context(|| format!("{name} cannot be read"))?;
        Ok(Snapshot::parse(lines).with_context(|| format!("{name} is not a usable snapshot"))?)
    }

    fn parse(lines: impl Read) -> anyhow::Result<Snapshot> {
        let mut lines = BufReader::new(lines.take(BYTES_MAX));
        let header = line(&mut lines, HEADER_MAX_BYTES).context("the file is damaged, or is not a snapshot")?;
        let header = header.context("the file is empty")?;
        let said: Value = serde_json::from_slice(&header).context("the file is not a snapshot")?;
        let (version, kind) = (&said["apiVersion"], &said["kind"]);
        ensure!(
            version == API_VERSION && kind == KIND,
            "the file is a {kind} of {version}, not a {KIND} of {API_VERSION}"
        );
        let header: Header = serde_json::from_value(said).context("the header is incomplete")?;
        ensure!(
            header.objects <= OBJECTS_MAX,
            "the file has {} objects; at most {OBJECTS_MAX} are allowed",
            header.objects
        );
        let mut objects: BTreeMap<Resource, Vec<Value>> = BTreeMap::new();
        for read in 0..header.objects {
            let of = || format!("the file is damaged after {read} of {} objects", header.objects);
            let Some(entry) = line(&mut lines, ENTRY_MAX_BYTES).with_context(of)? else {
                bail!("the file ends after {read} of {} objects", header.objects);
            };
            let entry: Entry = serde_json::from_slice(&entry).with_context(of)?;
            objects.entry(entry.of).or_default().push(entry.metadata);
        }
        // The checksum is at the end of the file.
        let more = line(&mut lines, ENTRY_MAX_BYTES).context("the file is damaged")?;
        ensure!(more.is_none(), "the file continues after its {} objects", header.objects);
        Ok(Snapshot { header, objects })
    }
}

impl Header {
    pub(super) fn new(taken_at: String, core: APIGroupDiscoveryList, groups: APIGroupDiscoveryList) -> Header {
        Header {
            api_version: API_VERSION.to_owned(),
            kind: KIND.to_owned(),
            taken_at,
            server: String::new(),
            cluster_uid: String::new(),
            namespace: String::new(),
            collections: BTreeSet::new(),
            core,
            groups,
            objects: 0,
        }
    }

    /// The cluster and the age of the snapshot. `now` is in seconds of the Unix epoch.
    pub(super) fn told(&self, now: i64) -> String {
        let Header { taken_at, server, objects, collections, .. } = self;
        let age = match taken_at.parse::<prost_types::Timestamp>() {
            Ok(at) => format!(" ({} ago)", span(now - at.seconds)),
            Err(_) => String::new(),
        };
        format!(
            "snapshot of {server}, taken at {taken_at}{age}: {objects} objects of {} collections",
            collections.len()
        )
    }
}

/// The next line without its end; `None` after the last.
fn line(lines: &mut impl BufRead, most: u64) -> anyhow::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    lines.take(most).read_until(b'\n', &mut line)?;
    match line.pop() {
        None => Ok(None),
        Some(b'\n') => Ok(Some(line)),
        Some(_) => bail!("a line is incomplete, or longer than {most} bytes"),
    }
}

/// All references of the objects whose nodes contain only the first of them, by uid.
fn long_lists(exported: &Exported) -> BTreeMap<&str, Vec<OwnerReference>> {
    let is_cut = |node: &&Node| node.owner_count as usize > node.owner_references.len();
    let cut = exported.nodes.iter().filter(is_cut);
    let uids = cut.filter_map(|node| node.r#ref.as_ref()).map(|object| object.uid.as_str());
    let mut lists: BTreeMap<&str, Vec<OwnerReference>> = uids.map(|uid| (uid, Vec::new())).collect();
    for edge in &exported.edges {
        if let (Some(list), Some(reference)) = (lists.get_mut(edge.dependent_uid.as_str()), &edge.reference) {
            list.push(reference.clone());
        }
    }
    lists
}

/// An object's metadata in the API server's form. `all_owners` is empty if the node has all references.
fn metadata(node: &Node, all_owners: &[OwnerReference]) -> Value {
    let object = node.r#ref.clone().unwrap_or_default();
    let version = if node.resource_version.is_empty() { NO_VERSION } else { &node.resource_version };
    let mut metadata = json!({ "name": object.name, "uid": object.uid, "resourceVersion": version });
    if !object.namespace.is_empty() {
        metadata["namespace"] = object.namespace.into();
    }
    if !node.finalizers.is_empty() {
        metadata["finalizers"] = node.finalizers.clone().into();
    }
    if node.state() == NodeState::Terminating {
        metadata["deletionTimestamp"] = node.delete_time.unwrap_or_default().to_string().into();
    }
    let owners = if all_owners.is_empty() { &node.owner_references } else { all_owners };
    let owners = owners.iter().map(|owner| {
        let mut value = json!({
            "apiVersion": owner.api_version, "kind": owner.kind, "name": owner.name, "uid": owner.uid,
        });
        for (field, flag) in [("controller", owner.controller), ("blockOwnerDeletion", owner.block_owner_deletion)] {
            if let Some(flag) = flag {
                value[field] = flag.into();
            }
        }
        value
    });
    let owners: Vec<Value> = owners.collect();
    if !owners.is_empty() {
        metadata["ownerReferences"] = owners.into();
    }
    metadata
}
