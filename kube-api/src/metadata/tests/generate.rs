//! Random objects as JSON: mostly valid, sometimes with missing or unusual values.

use engine::jitter::Rng;
use serde_json::{Map, Value, json};

/// Randomness from a seed.
#[derive(Clone, Debug)]
pub(crate) struct Draw(Rng);

impl Draw {
    pub(crate) fn new(seed: u64) -> Draw {
        Draw(Rng::new(seed))
    }

    pub(crate) fn number(&mut self) -> u64 {
        self.0.next()
    }

    /// A number below `end`, which is not 0.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.number() % (end.max(1) as u64)).unwrap_or(0)
    }

    pub(crate) fn percent(&mut self, chance: usize) -> bool {
        self.below(100) < chance
    }

    fn pick<'t>(&mut self, from: &[&'t str]) -> &'t str {
        from[self.below(from.len())]
    }

    pub(crate) fn uid(&mut self) -> String {
        let (high, low) = (self.number(), self.number());
        let digits = format!("{high:016x}{low:016x}");
        [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]].join("-")
    }
}

fn set(draw: &mut Draw, object: &mut Map<String, Value>, field: &str, chance: usize, value: Value) {
    if draw.percent(chance) {
        object.insert(field.to_owned(), value);
    }
}

/// An object whose fields may be missing, empty or unusual, but have the right types.
pub(crate) fn odd(draw: &mut Draw) -> Value {
    let mut metadata = Map::new();
    let name = draw.pick(&["web", "web-7d4b9c-x2x", "", "naïve \"quoted\" \\ \u{1f980}", "a.b:c"]);
    set(draw, &mut metadata, "name", 97, json!(name));
    let namespace = draw.pick(&["shop", "default", "", "kube-system"]);
    set(draw, &mut metadata, "namespace", 90, json!(namespace));
    let uid = if draw.percent(80) {
        draw.uid()
    } else {
        draw.pick(&["", "u", "5C4A2D24-1c8d-4e5c-9d5b-0a8f5f0c7f11"]).to_owned()
    };
    set(draw, &mut metadata, "uid", 97, json!(uid));
    let version =
        if draw.percent(80) { draw.number().to_string() } else { draw.pick(&["", "0", "007", "x"]).to_owned() };
    set(draw, &mut metadata, "resourceVersion", 97, json!(version));
    let generation = draw.below(1000);
    set(draw, &mut metadata, "generation", 50, json!(generation));
    set(draw, &mut metadata, "creationTimestamp", 90, json!("2026-01-01T00:00:00Z"));
    let deleted =
        draw.pick(&["2026-01-01T00:00:00Z", "1970-01-01T00:00:00Z", "0001-01-01T00:00:01Z", "2200-01-01T00:00:00Z"]);
    set(draw, &mut metadata, "deletionTimestamp", 20, json!(deleted));
    set(draw, &mut metadata, "labels", 50, json!({ "app": "web", "pod-template-hash": "7d4b9c" }));
    let mut annotations = Map::new();
    set(draw, &mut annotations, "ownergraph.dev/hold", 20, json!(""));
    set(draw, &mut annotations, "k8s.io/initial-events-end", 10, json!("true"));
    set(draw, &mut annotations, "example.com/large", 20, json!("x".repeat(300)));
    set(draw, &mut annotations, "", 10, json!("y"));
    set(draw, &mut metadata, "annotations", 60, Value::Object(annotations));
    let owners: Vec<Value> = (0..draw.below(4)).map(|_| owner(draw)).collect();
    set(draw, &mut metadata, "ownerReferences", 70, json!(owners));
    let finalizers: Vec<&str> =
        (0..draw.below(4)).map(|_| draw.pick(&["orphan", "foregroundDeletion", "example.com/f", "", "ü"])).collect();
    set(draw, &mut metadata, "finalizers", 40, json!(finalizers));
    set(draw, &mut metadata, "managedFields", 60, json!([{ "manager": "m", "fieldsV1": { "f:spec": {} } }]));
    json!({ "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata })
}

fn owner(draw: &mut Draw) -> Value {
    let uid = if draw.percent(90) { draw.uid() } else { draw.pick(&["", "u1"]).to_owned() };
    let (kind, name) =
        (draw.pick(&["ReplicaSet", "ReplicaSet", "Pod", "Pod", ""]), draw.pick(&["rs", "web-7d4b9c", "web"]));
    let mut owner = json!({ "apiVersion": draw.pick(&["apps/v1", "v1"]), "kind": kind, "name": name, "uid": uid });
    for flag in ["controller", "blockOwnerDeletion"] {
        if draw.percent(60) {
            owner[flag] = json!(draw.percent(50));
        }
    }
    owner
}
