//! The form of a guard at the API server. If a part cannot be read, the guard holds more, never less: a scope that
//! cannot be read is everything, a rule that cannot be read holds its scope, and a permission that cannot be read
//! permits nothing.
//!
//! In reading order: `values` (bounded values), `scope`, `presets` (marks of other tools), `rule`.

use crate::gates::transport::Transport;
use engine::guard::{Guard, GuardId, GuardKind};
use engine::object::{ResourceVersion, Uid, clip};
use engine::scope::Scope;
use proto::convert::{CLOCK_AHEAD_MAX, LIFETIME_MAX, REASON_MAX_BYTES};
use runtime::visible;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::sync::Arc;
use std::time::Duration;
use values::{Date, Within};

mod presets;
mod rule;
mod scope;
#[cfg(test)]
mod tests;
mod values;

/// Annotation with the user that requested a pause.
pub(crate) const PRESSED_BY: &str = "ownergraph.dev/pressed-by";
/// Longest user name that is written or read.
pub(crate) const ACTOR_MAX_BYTES: usize = 256;
/// The longest lifetime of a pause, in seconds.
const DAY: u64 = LIFETIME_MAX.as_secs();
/// The longest lifetime of the other guards, in seconds: ten years.
const DECADE: u64 = 3650 * DAY;
/// Longest text about one error.
const ERROR_MAX_BYTES: usize = 300;

/// How a guard was first seen, with the time of the API server's answer since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sight {
    /// The guard was just created, so its whole lifetime is left.
    Fresh { now: Option<Duration> },
    /// The guard was found. The time of the answer gives the rest of its lifetime. Without that time, the whole
    /// lifetime is left.
    Found { now: Option<Duration> },
}

impl Sight {
    /// Without the time, no approval and no bypass can be compared with its end, so none counts.
    fn now(self) -> Option<Duration> {
        let (Sight::Fresh { now } | Sight::Found { now }) = self;
        now
    }
}

/// One guard.
#[derive(Debug, PartialEq)]
pub(crate) enum Seen {
    Standing(Box<Standing>),
    /// The guard is being deleted. It counts as gone, because the deletion is the order to release.
    Leaving {
        name: String,
        uid: Uid,
    },
}

#[derive(Debug, PartialEq)]
pub(crate) struct Standing {
    pub(crate) guard: Guard,
    /// The policy engine of a gate whose rule can be read.
    pub(crate) engine: Option<Transport>,
}

/// Reads a guard. The error says why the text is not a guard of this kind.
pub(crate) fn read(kind: GuardKind, json: &str, sight: Sight) -> Result<Seen, String> {
    let word = kind.as_str();
    let raw: Raw = serde_json::from_str(json).map_err(|error| format!("an unreadable {word}: {error}"))?;
    let metadata = raw.metadata;
    let uid = Uid::parse(&metadata.uid).ok_or_else(|| format!("a {word} without a uid"))?;
    if metadata.name.is_empty() {
        return Err(format!("a {word} without a name"));
    }
    if metadata.deletion_timestamp.is_some() {
        return Ok(Seen::Leaving { name: metadata.name, uid });
    }
    let mut spec = Spec::of(raw.spec);
    let lifetime = lifetime(kind, &mut spec);
    let scope = scope(kind, &mut spec);
    let reason = spec.field::<String>("reason").ok().flatten().unwrap_or_default();
    let (rule, engine) = rule::read(kind, &mut spec, &raw.status, sight.now());
    let created = Date::try_from(metadata.creation_timestamp).ok().map(|Date(since)| since);
    let elapsed = match (sight, created) {
        (Sight::Found { now: Some(now) }, Some(created)) => now.saturating_sub(created).saturating_sub(CLOCK_AHEAD_MAX),
        (Sight::Fresh { .. } | Sight::Found { .. }, _) => Duration::ZERO,
    };
    let guard = Guard {
        id: GuardId { kind, name: Arc::from(metadata.name) },
        uid,
        resource_version: ResourceVersion::parse(&metadata.resource_version),
        generation: metadata.generation,
        scope,
        reason: clip(&reason, REASON_MAX_BYTES),
        actor: actor(&metadata.annotations, &metadata.managed_fields),
        created: created.unwrap_or_default(),
        lifetime,
        elapsed,
        read_at: sight.now().unwrap_or_default(),
        recorded: rule::recorded(kind, &raw.status),
        problem: clip(&spec.problems.join("; "), REASON_MAX_BYTES),
        rule,
    };
    Ok(Seen::Standing(Box::new(Standing { guard, engine })))
}

fn lifetime(kind: GuardKind, spec: &mut Spec) -> Option<Duration> {
    const FIELD: &str = "lifetimeSeconds";
    if kind == GuardKind::Pause {
        let lifetime = spec.field::<Within<1, DAY>>(FIELD).and_then(|found| found.ok_or_else(|| missing(FIELD)));
        return Some(match lifetime {
            Ok(Within(seconds)) => Duration::from_secs(seconds),
            Err(why) => {
                spec.problem(&why, "so the pause has the longest allowed lifetime");
                LIFETIME_MAX
            }
        });
    }
    match spec.field::<Within<1, DECADE>>(FIELD) {
        Ok(lifetime) => lifetime.map(|Within(seconds)| Duration::from_secs(seconds)),
        Err(why) => {
            spec.problem(&why, &format!("so the {} does not expire", kind.as_str()));
            None
        }
    }
}

fn scope(kind: GuardKind, spec: &mut Spec) -> Scope {
    let listed = spec.field::<scope::Scope>("scope").map(|found| found.map(Scope::from).unwrap_or_default());
    let scope = if kind == GuardKind::Protection {
        let presets = spec.field::<presets::Presets>("presets").map(Option::unwrap_or_default);
        listed.and_then(|listed| presets.map(|presets| (listed, presets))).and_then(|(mut scope, presets)| {
            scope.targets.extend(presets.targets());
            if scope.targets.is_empty() {
                return Err("spec.scope.targets and spec.presets: both are empty".to_owned());
            }
            Ok(scope)
        })
    } else {
        listed
    };
    scope.unwrap_or_else(|why| {
        spec.problem(&why, &format!("so the {} covers everything", kind.as_str()));
        Scope::default()
    })
}

/// The user that created a guard: from the annotation, or else the field manager that created it.
fn actor(annotations: &Value, managed_fields: &Value) -> String {
    let plain = |text: &str| clip(&visible::line(text), ACTOR_MAX_BYTES);
    match annotations[PRESSED_BY].as_str().filter(|user| !user.is_empty()) {
        Some(user) => plain(user),
        None => {
            let manager = managed_fields[0]["manager"].as_str().filter(|manager| !manager.is_empty());
            manager.map_or_else(String::new, |manager| plain(&format!("manager {manager}")))
        }
    }
}

fn missing(field: &str) -> String {
    format!("spec.{field}: is missing")
}

/// The fields of a spec that are not read so far, and the errors in those that are.
struct Spec {
    fields: Map<String, Value>,
    problems: Vec<String>,
}

impl Spec {
    fn of(value: Value) -> Spec {
        if let Value::Object(fields) = value {
            return Spec { fields, problems: Vec::new() };
        }
        Spec { fields: Map::new(), problems: vec!["spec: is not an object".to_owned()] }
    }

    /// Takes a field. The error names its path.
    fn field<T: DeserializeOwned>(&mut self, name: &str) -> Result<Option<T>, String> {
        self.fields.remove(name).map(|value| parse(value, &format!("spec.{name}"))).transpose()
    }

    /// Takes the remaining fields.
    fn rest<T: DeserializeOwned>(&mut self) -> Result<T, String> {
        parse(Value::Object(std::mem::take(&mut self.fields)), "spec")
    }

    /// Reports an error and its effect.
    fn problem(&mut self, why: &str, effect: &str) {
        self.problems.push(format!("{why}, {effect}"));
    }
}

/// Reads a value. The error names the position of the error below `path`.
fn parse<T: DeserializeOwned>(value: Value, path: &str) -> Result<T, String> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        let below = error.path().to_string();
        let below = match below.as_str() {
            "." => "",
            at if at.starts_with('[') => at,
            at => &format!(".{at}"),
        };
        clip(&visible::line(&format!("{path}{below}: {}", error.inner())), ERROR_MAX_BYTES)
    })
}

#[derive(Deserialize)]
struct Raw {
    metadata: RawMetadata,
    #[serde(default)]
    spec: Value,
    #[serde(default)]
    status: Value,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawMetadata {
    #[serde(default)]
    name: String,
    #[serde(default)]
    uid: String,
    #[serde(default)]
    resource_version: String,
    #[serde(default)]
    generation: u64,
    #[serde(default)]
    creation_timestamp: String,
    deletion_timestamp: Option<serde::de::IgnoredAny>,
    #[serde(default)]
    annotations: Value,
    #[serde(default)]
    managed_fields: Value,
}
