//! A file that holds a graph, to be asked later and elsewhere: what the API server serves, and for each object its
//! identity, its owners, its finalizers and its deletion state. It holds no spec, status or data.
//!
//! It is lines of JSON, compressed with zstd: a [`Header`], and as many [`Entry`] as that says.

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
/// Of a snapshot as it is read, so that a small file cannot fill the memory.
const BYTES_MAX: u64 = 1 << 30;
/// Of the header and of an object.
const HEADER_MAX_BYTES: u64 = 64 << 20;
const ENTRY_MAX_BYTES: u64 = 2 << 20;
const OBJECTS_MAX: u64 = 2_000_000;
/// For objects of which the graph knows no version.
const NO_VERSION: &str = "1";

/// Everything, or what an export was asked for.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Exported {
    pub(super) nodes: Vec<Node>,
    pub(super) edges: Vec<Edge>,
    pub(super) unsynced: Vec<GroupResource>,
    /// uid of the cluster; empty if it is not known.
    pub(super) cluster_uid: String,
}

/// By group and name.
pub(super) type Resource = (String, String);

/// What is said of all of it.
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
    /// Of what is named without one.
    pub(super) namespace: String,
    /// Collections that are in it whole.
    pub(super) collections: BTreeSet<Resource>,
    /// The groups that the API server serves, the core group first.
    pub(super) core: APIGroupDiscoveryList,
    pub(super) groups: APIGroupDiscoveryList,
    /// How many follow.
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
    /// `header` counts no objects yet.
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
        Ok(Snapshot::parse(lines).with_context(|| format!("{name} is no snapshot that can be used"))?)
    }

    fn parse(lines: impl Read) -> anyhow::Result<Snapshot> {
        let mut lines = BufReader::new(lines.take(BYTES_MAX));
        let header = line(&mut lines, HEADER_MAX_BYTES).context("it is damaged, or of another kind")?;
        let header = header.context("it is empty")?;
        let said: Value = serde_json::from_slice(&header).context("it is of another kind")?;
        let (version, kind) = (&said["apiVersion"], &said["kind"]);
        ensure!(version == API_VERSION && kind == KIND, "it is a {kind} of {version}, not a {KIND} of {API_VERSION}");
        let header: Header = serde_json::from_value(said).context("its header lacks something")?;
        ensure!(header.objects <= OBJECTS_MAX, "it has {} objects; at most {OBJECTS_MAX}", header.objects);
        let mut objects: BTreeMap<Resource, Vec<Value>> = BTreeMap::new();
        for read in 0..header.objects {
            let of = || format!("after {read} of {} objects it is damaged", header.objects);
            let Some(entry) = line(&mut lines, ENTRY_MAX_BYTES).with_context(of)? else {
                bail!("it is cut off after {read} of {} objects", header.objects);
            };
            let entry: Entry = serde_json::from_slice(&entry).with_context(of)?;
            objects.entry(entry.of).or_default().push(entry.metadata);
        }
        // The checksum stands at the end.
        let more = line(&mut lines, ENTRY_MAX_BYTES).context("it is damaged")?;
        ensure!(more.is_none(), "it goes on after its {} objects", header.objects);
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

    /// What it is of, and how old it is. `now` is in seconds of the Unix epoch.
    pub(super) fn told(&self, now: i64) -> String {
        let Header { taken_at, server, objects, collections, .. } = self;
        let age = match taken_at.parse::<prost_types::Timestamp>() {
            Ok(at) => format!(" ({} ago)", span(now - at.seconds)),
            Err(_) => String::new(),
        };
        format!("this is {server} as it was at {taken_at}{age}: {objects} objects of {} collections", collections.len())
    }
}

/// The next line without its end; `None` after the last.
fn line(lines: &mut impl BufRead, most: u64) -> anyhow::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    lines.take(most).read_until(b'\n', &mut line)?;
    match line.pop() {
        None => Ok(None),
        Some(b'\n') => Ok(Some(line)),
        Some(_) => bail!("a line is cut off, or longer than {most} bytes"),
    }
}

/// All references of the objects whose nodes name only the first of them, by uid.
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

/// An object's metadata as the API server would write it. `all_owners` is empty where the node has all of them.
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
