//! `cargo bench -p graph-service --bench ingest`: from the bytes of a watch to an object and into the graph, compared
//! with kube's typed path. `EVENTS=n` sets the number of events (default: 100 000), `GUARDS=n` the number of guards
//! with label selectors of the last contender (default: 200), `ROUNDS=n` the number of rounds (default: 8), `JSON=FILE`
//! also writes the table to that file.
//!
//! The unit is CPU time of one thread, so that other processes disturb little. Contenders take turns for several
//! rounds, and the median counts.

#[path = "../../kube-api/src/metadata/tests/generate.rs"]
#[allow(dead_code, reason = "shared with tests that need more of it")]
mod generate;
#[path = "../../kube-api/src/metadata/tests/oracle.rs"]
#[allow(dead_code, reason = "shared with tests that need more of it")]
mod oracle;
#[path = "data/pods.rs"]
mod pods;
#[path = "../../engine/benches/shared/replica.rs"]
#[allow(dead_code, reason = "shared with benchmarks that need more of it")]
mod replica;

use anyhow::{Context as _, bail};
use engine::leader::{Config, Input, Leader, Mode, Policy};
use engine::object::{
    Access, Backend, Facts, GroupResource, HOLD_ANNOTATION, Object, OwnerReference, ResourceVersion, ServedKind, Uid,
};
use engine::selectors::Matcher;
use engine::time::Time;
use generate::Draw;
use http::Request;
use k8s_openapi::api::core::v1::Pod;
use kube::core::{PartialObjectMeta, WatchEvent};
use kube_api::metadata::{Decoder, Encoding, Event, Item, event};
use kube_api::{Cluster, Frames, Lines, Opened, open_stream};
use prost::Message as _;
use rustix::time::{ClockId, clock_gettime};
use serde_json::json;
use std::hint::black_box;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

/// The allocator of the services.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const EVENTS: usize = 100_000;
const GUARDS: usize = 200;
const ROUNDS: usize = 8;
/// Maximum number of inputs that the service gives to the engine at once.
const BATCH: usize = 1_024;
const EVENT_MAX_BYTES: usize = 16 * 1024 * 1024;
/// Size at which Go's HTTP server sends a chunk.
const CHUNK_BYTES: usize = 2_048;

/// The events of one watch, in both encodings.
struct Data {
    lines: Vec<Vec<u8>>,
    frames: Vec<Vec<u8>>,
    /// The number of guards of the contender with guards.
    guards: usize,
}

fn generate(events: usize, guards: usize) -> Data {
    let mut draw = Draw::new(1);
    let owners: Vec<String> = (0..=events / 10).map(|_| draw.uid()).collect();
    let mut data = Data { lines: Vec::new(), frames: Vec::new(), guards };
    for number in 0..events {
        let pod = pods::pod(&mut draw, number, &owners[number / 10], 10_000_000 + number);
        let line = json!({ "type": "MODIFIED", "object": pod });
        data.lines.push(line.to_string().into_bytes());
        data.frames.push(oracle::event(&line));
    }
    data
}

/// CPU time of this thread.
fn now() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or_default())
}

fn item(encoding: Encoding, piece: &[u8]) -> anyhow::Result<Item<'_>> {
    match event(encoding, piece) {
        Ok(Event::Modified(item)) => Ok(item),
        other => bail!("{other:?}"),
    }
}

/// Reads all metadata that the collector uses, and keeps nothing.
fn scan(frame: &[u8]) -> anyhow::Result<()> {
    let Item::Protobuf(Ok(metadata)) = item(Encoding::Protobuf, frame)? else { bail!("no object") };
    for owner in metadata.owners() {
        black_box(owner?);
    }
    for finalizer in metadata.finalizers() {
        black_box(finalizer?);
    }
    black_box(metadata);
    Ok(())
}

type Typed = WatchEvent<PartialObjectMeta<Pod>>;

fn kube(line: &[u8]) -> anyhow::Result<PartialObjectMeta<Pod>> {
    let WatchEvent::Modified(object) = serde_json::from_slice::<Typed>(line)? else { bail!("no object") };
    Ok(object)
}

fn prost(frame: &[u8]) -> anyhow::Result<oracle::ObjectMeta> {
    let event = oracle::WatchEvent::decode(frame)?;
    let raw = event.object.context("an object")?.raw;
    let unknown = oracle::Unknown::decode(raw.get(4..).context("an envelope")?)?;
    let object = oracle::PartialObjectMetadata::decode(&*unknown.raw.context("an object")?)?;
    object.metadata.context("metadata")
}

fn of_kube(object: PartialObjectMeta<Pod>) -> anyhow::Result<Object> {
    let metadata = object.metadata;
    let owners = metadata.owner_references.unwrap_or_default().into_iter().map(|owner| {
        Some(OwnerReference {
            api_version: owner.api_version.into(),
            kind: owner.kind.into(),
            name: owner.name.into(),
            uid: Uid::parse(&owner.uid)?,
            controller: owner.controller,
            block_owner_deletion: owner.block_owner_deletion,
        })
    });
    Ok(Object {
        marks: Default::default(),
        uid: metadata.uid.as_deref().and_then(Uid::parse).context("a uid")?,
        namespace: metadata.namespace.unwrap_or_default().into(),
        name: metadata.name.unwrap_or_default().into(),
        resource_version: ResourceVersion::parse(&metadata.resource_version.unwrap_or_default()),
        facts: Facts {
            owners: owners.collect::<Option<_>>().context("owners")?,
            excess: None,
            finalizers: metadata.finalizers.unwrap_or_default().into_iter().map(Arc::from).collect(),
            terminating: metadata.deletion_timestamp.is_some(),
            hold: metadata.annotations.is_some_and(|annotations| annotations.contains_key(HOLD_ANNOTATION)),
            deletion_time: None,
        },
    })
}

fn of_prost(metadata: oracle::ObjectMeta) -> anyhow::Result<Object> {
    let owners = metadata.owner_references.into_iter().map(|owner| {
        Some(OwnerReference {
            api_version: owner.api_version.into(),
            kind: owner.kind.into(),
            name: owner.name.into(),
            uid: Uid::parse(&owner.uid)?,
            controller: owner.controller,
            block_owner_deletion: owner.block_owner_deletion,
        })
    });
    Ok(Object {
        marks: Default::default(),
        uid: Uid::parse(&metadata.uid).context("a uid")?,
        namespace: metadata.namespace.into(),
        name: metadata.name.into(),
        resource_version: ResourceVersion::parse(&metadata.resource_version),
        facts: Facts {
            owners: owners.collect::<Option<_>>().context("owners")?,
            excess: None,
            finalizers: metadata.finalizers.into_iter().map(Arc::from).collect(),
            terminating: !metadata.deletion_timestamp.is_empty(),
            hold: metadata.annotations.iter().any(|entry| entry.key == HOLD_ANNOTATION.as_bytes()),
            deletion_time: None,
        },
    })
}

fn served(group: &str, resource: &str, kind: &str) -> ServedKind {
    ServedKind {
        group_resource: GroupResource { group: group.into(), resource: resource.into() },
        kind: kind.into(),
        version: "v1".into(),
        other_versions: Vec::new(),
        split: false,
        namespaced: true,
        access: Access::Watched,
        backend: Backend::Main,
        deletable: true,
        names: Default::default(),
    }
}

/// A graph with an earlier state of every object, and their owners. Also returns the selectors of its guards.
fn graph(data: &Data, guards: usize) -> anyhow::Result<(Leader, Matcher)> {
    let config = Config {
        mode: Mode::Enforce,
        cluster_uid: "cluster".into(),
        endpoint: "here:1".to_owned(),
        session_ttl: Duration::from_secs(15),
        heartbeat_interval: Duration::from_secs(5),
        execution_limit: Duration::from_secs(30),
        stale_after: Duration::from_secs(30),
        policy: Policy::default(),
        protocols: engine::work::Protocols::OURS,
    };
    let mut leader = Leader::new(config, 1);
    let table = replica::guard(&mut leader, guards);
    let selectors = table.generation();
    let mut matcher = Matcher::new(table);
    let mut decoder = Decoder::new(Some(true));
    let mut owners = Vec::new();
    let input = |leader: &mut Leader, input: Input| {
        leader.handle(Time::ZERO, input);
        while leader.poll().is_some() {}
    };
    let (pods, sets) = (served("", "pods", "Pod"), served("apps", "replicasets", "ReplicaSet"));
    let collection = pods.group_resource.clone();
    input(&mut leader, Input::KindServed(pods));
    input(&mut leader, Input::ListBegun { collection: collection.clone(), selectors });
    for frame in &data.frames {
        let mut object = read(Encoding::Protobuf, frame, &mut decoder, &mut matcher)?;
        object.resource_version = ResourceVersion::parse("1");
        if let [owner] = &*object.facts.owners {
            let (uid, name, namespace) = (owner.uid.clone(), owner.name.clone(), object.namespace.clone());
            let resource_version = ResourceVersion::parse("1");
            owners.push(Object {
                uid,
                namespace,
                name,
                resource_version,
                facts: Facts::default(),
                marks: Default::default(),
            });
        }
        input(&mut leader, Input::Listed { collection: collection.clone(), object });
    }
    let resource_version = ResourceVersion::parse("2");
    input(&mut leader, Input::ListEnded { collection, resource_version: resource_version.clone() });
    let collection = sets.group_resource.clone();
    input(&mut leader, Input::KindServed(sets));
    input(&mut leader, Input::ListBegun { collection: collection.clone(), selectors });
    owners.dedup_by(|a, b| a.uid == b.uid);
    for object in owners {
        input(&mut leader, Input::Listed { collection: collection.clone(), object });
    }
    input(&mut leader, Input::ListEnded { collection, resource_version });
    Ok((leader, matcher))
}

/// Reads one event as the service does.
fn read(encoding: Encoding, piece: &[u8], decoder: &mut Decoder, matcher: &mut Matcher) -> anyhow::Result<Object> {
    let item = item(encoding, piece)?;
    let mut object = decoder.object(&item).map_err(anyhow::Error::msg)?;
    object.marks = item.marks(matcher).map_err(anyhow::Error::msg)?;
    Ok(object)
}

/// The graph, a batch at a time.
struct Applied<'a> {
    leader: &'a mut Leader,
    collection: GroupResource,
    pending: usize,
}

impl<'a> Applied<'a> {
    fn new(leader: &'a mut Leader) -> Applied<'a> {
        Applied { leader, collection: served("", "pods", "Pod").group_resource, pending: 0 }
    }

    fn see(&mut self, object: Object) {
        self.leader.handle(Time::ZERO, Input::Seen { collection: self.collection.clone(), object });
        self.pending += 1;
        if self.pending == BATCH {
            self.pending = 0;
            while self.leader.poll().is_some() {}
        }
    }
}

/// CPU time for all of `pieces`.
fn timed(pieces: &[Vec<u8>], mut each: impl FnMut(&[u8]) -> anyhow::Result<()>) -> anyhow::Result<Duration> {
    let began = now();
    for piece in pieces {
        each(piece)?;
    }
    Ok(now() - began)
}

/// Serves `body`, which has chunked encoding, once.
fn serve(content_type: &'static str, body: Arc<Vec<u8>>) -> anyhow::Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = listener.local_addr()?;
    std::thread::spawn(move || -> std::io::Result<()> {
        let (mut stream, _) = listener.accept()?;
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte)?;
            request.extend_from_slice(&byte);
        }
        let head = format!("HTTP/1.1 200 OK\r\ncontent-type: {content_type}\r\ntransfer-encoding: chunked\r\n\r\n");
        stream.write_all(head.as_bytes())?;
        stream.write_all(&body)
    });
    Ok(address)
}

/// CPU time of the client alone, from socket to graph. As in the service a separate task reads: the main task of the
/// thread would poll for other events before each chunk.
fn from_socket(encoding: Encoding, body: &Arc<Vec<u8>>, graph: (Leader, Matcher)) -> anyhow::Result<Duration> {
    let (mut leader, mut matcher) = graph;
    let content_type = match encoding {
        Encoding::Json => "application/json",
        Encoding::Protobuf => "application/vnd.kubernetes.protobuf;stream=watch",
    };
    let address = serve(content_type, body.clone())?;
    let process = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let reading = process.spawn(async move {
        let cluster = Cluster::without_credentials(format!("http://{address}").parse()?)?;
        let request = Request::get("/watch").body(Vec::new())?;
        let began = now();
        let Opened::Streaming { body, .. } = open_stream(&cluster.client, request, Duration::from_secs(30)).await?
        else {
            bail!("refused");
        };
        let (mut decoder, mut graph) = (Decoder::new(Some(true)), Applied::new(&mut leader));
        let mut take = |piece: &[u8]| -> anyhow::Result<()> {
            graph.see(read(encoding, piece, &mut decoder, &mut matcher)?);
            Ok(())
        };
        match encoding {
            Encoding::Json => {
                let mut lines = Lines::new(body, EVENT_MAX_BYTES);
                while let Some(line) = lines.next().await? {
                    take(&line)?;
                }
            }
            Encoding::Protobuf => {
                let mut frames = Frames::new(body, EVENT_MAX_BYTES);
                while let Some(frame) = frames.next().await? {
                    take(&frame)?;
                }
            }
        }
        Ok(now() - began)
    });
    process.block_on(reading)?
}

/// The last stage of a contender.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reach {
    Read,
    Object,
    Graph,
    Socket,
}

const REACHES: [(Reach, &str); 4] =
    [(Reach::Read, "read"), (Reach::Object, "object"), (Reach::Graph, "graph"), (Reach::Socket, "socket to graph")];
const NAMES: [&str; 5] = ["kube's typed JSON", "ours, JSON", "prost", "ours, protobuf", "ours, with guards"];

/// Runs one contender once. `None` if it does not have this stage.
fn run(contender: usize, reach: Reach, data: &Data, wire: &Wire) -> anyhow::Result<Option<Duration>> {
    let (pieces, encoding) =
        if contender < 2 { (&data.lines, Encoding::Json) } else { (&data.frames, Encoding::Protobuf) };
    let guards = if contender == 4 { data.guards } else { 0 };
    let of_graph = || graph(data, guards);
    let mut decoder = Decoder::new(Some(true));
    let mut object = |piece: &[u8], matcher: &mut Matcher| match contender {
        0 => of_kube(kube(piece)?),
        2 => of_prost(prost(piece)?),
        _ => read(encoding, piece, &mut decoder, matcher),
    };
    Ok(Some(match reach {
        Reach::Read => match contender {
            0 => timed(pieces, |piece| kube(piece).map(|read| drop(black_box(read))))?,
            2 => timed(pieces, |piece| prost(piece).map(|read| drop(black_box(read))))?,
            3 => timed(pieces, scan)?,
            _ => return Ok(None),
        },
        Reach::Object => {
            let mut matcher = Matcher::new(replica::guard(&mut replica::leader(), guards));
            timed(pieces, |piece| object(piece, &mut matcher).map(|object| drop(black_box(object))))?
        }
        Reach::Graph => {
            let (mut leader, mut matcher) = of_graph()?;
            let mut graph = Applied::new(&mut leader);
            timed(pieces, |piece| object(piece, &mut matcher).map(|object| graph.see(object)))?
        }
        Reach::Socket => match contender {
            1 => from_socket(encoding, &wire.lines, of_graph()?)?,
            3 | 4 => from_socket(encoding, &wire.frames, of_graph()?)?,
            _ => return Ok(None),
        },
    }))
}

/// The events as they are on the wire, in chunks.
struct Wire {
    lines: Arc<Vec<u8>>,
    frames: Arc<Vec<u8>>,
}

fn wire(data: &Data) -> Wire {
    let line = |line: &Vec<u8>| [line, &b"\n"[..]].concat();
    let frame = |frame: &Vec<u8>| [&u32::try_from(frame.len()).unwrap_or(0).to_be_bytes()[..], frame].concat();
    Wire {
        lines: Arc::new(chunked(&data.lines.iter().flat_map(line).collect::<Vec<u8>>())),
        frames: Arc::new(chunked(&data.frames.iter().flat_map(frame).collect::<Vec<u8>>())),
    }
}

/// The bytes in chunks, each as large as the buffer of the API server.
fn chunked(all: &[u8]) -> Vec<u8> {
    let mut chunks = Vec::with_capacity(all.len() + all.len() / 64);
    for chunk in all.chunks(CHUNK_BYTES) {
        chunks.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
        chunks.extend_from_slice(chunk);
        chunks.extend_from_slice(b"\r\n");
    }
    chunks.extend_from_slice(b"0\r\n\r\n");
    chunks
}

/// The result of one contender for one event.
struct Row {
    reach: &'static str,
    contender: &'static str,
    nanoseconds: f64,
    /// Speed relative to the first contender with this stage, normally kube's.
    ratio: f64,
}

/// Runs all contenders in turns.
fn measure(data: &Data, wire: &Wire, rounds: usize) -> anyhow::Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (reach, name) in REACHES {
        let mut times: [Vec<Duration>; 5] = Default::default();
        for round in 0..rounds {
            for turn in 0..NAMES.len() {
                // Rotate the order, and reverse it in every other round, so that each contender follows others.
                let turn = if round % 2 == 0 { turn } else { NAMES.len() - 1 - turn };
                let contender = (turn + round) % NAMES.len();
                times[contender].extend(run(contender, reach, data, wire)?);
            }
        }
        let median = |times: &mut Vec<Duration>| {
            times.sort_unstable();
            times.get(times.len() / 2).map(|time| time.as_secs_f64() * 1e9 / data.frames.len() as f64)
        };
        let medians = times.each_mut().map(median);
        let base = medians.iter().flatten().copied().next().unwrap_or(f64::NAN);
        let measured = medians.into_iter().zip(NAMES).filter_map(|(nanoseconds, name)| Some((nanoseconds?, name)));
        rows.extend(measured.map(|(nanoseconds, contender)| Row {
            reach: name,
            contender,
            nanoseconds,
            ratio: base / nanoseconds,
        }));
    }
    Ok(rows)
}

fn main() -> anyhow::Result<()> {
    // `cargo test --benches` also starts benchmarks, which must not take time then.
    if !std::env::args().any(|argument| argument == "--bench") {
        return Ok(());
    }
    let number = |name: &str, default| match std::env::var(name) {
        Ok(text) => text.parse::<usize>().with_context(|| format!("{name} is {text:?}")),
        Err(_) => Ok(default),
    };
    let events = number("EVENTS", EVENTS)?.max(1);
    let data = generate(events, number("GUARDS", GUARDS)?);
    let rounds = number("ROUNDS", ROUNDS)?.max(1);
    let wire = wire(&data);
    let bytes = |pieces: &[Vec<u8>]| pieces.iter().map(Vec::len).sum::<usize>() / events;
    let (json_bytes, protobuf_bytes) = (bytes(&data.lines), bytes(&data.frames));
    let mut out = std::io::stderr();
    writeln!(
        out,
        "{events} watch events, {json_bytes} bytes each as JSON, {protobuf_bytes} as protobuf; CPU time of one thread, \
         median of {rounds}"
    )?;
    let rows = measure(&data, &wire, rounds)?;
    for Row { reach, contender, nanoseconds, ratio } in &rows {
        let per_second = 1e9 / nanoseconds;
        writeln!(out, "{reach:16} {contender:18} {nanoseconds:8.0} ns {per_second:12.0} events/s {ratio:6.1} x")?;
    }
    if let Some(path) = std::env::var_os("JSON") {
        let row = |row: &Row| {
            json!({ "reach": row.reach, "contender": row.contender, "nanoseconds_per_event": row.nanoseconds,
                "events_per_second": 1e9 / row.nanoseconds, "ratio": row.ratio })
        };
        let entries: Vec<_> = rows.iter().map(row).collect();
        let ours = |reach: &str| rows.iter().find(|row| row.reach == reach && row.contender == NAMES[3]);
        let guarded = rows.iter().find(|row| row.reach == "socket to graph" && row.contender == NAMES[4]);
        let figure = |budget: &str, of: Option<f64>| json!({ "budget": budget, "median": of, "least": of, "most": of, "samples": 1 });
        let figures = [
            figure("decode", ours("object").map(|row| row.ratio)),
            figure("ingest", ours("socket to graph").map(|row| 1e9 / row.nanoseconds)),
            figure(
                "ingest-guarded",
                ours("socket to graph").zip(guarded).map(|(ours, row)| ours.nanoseconds / row.nanoseconds),
            ),
        ];
        let settings = json!({ "EVENTS": events, "GUARDS": data.guards, "rounds": rounds, "jsonBytes": json_bytes, "protobufBytes": protobuf_bytes });
        let report = json!({ "bench": "ingest", "settings": settings, "figures": figures, "runs": entries });
        std::fs::write(&path, format!("{report:#}\n"))?;
    }
    Ok(())
}
