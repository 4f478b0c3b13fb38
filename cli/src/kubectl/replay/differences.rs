//! The decisions of another version in a file, compared with those of this one.
//!
//! Two decisions are the same if their action, their object and the facts that they depend on are the same: then they
//! have the same decision id. A deletion must also have the same propagation policy, and a removal of references the
//! same owners. Times do not count.

use super::{Document, Kind, Problem, Replay, Schema, object, seconds_since_1970, why};
use crate::counted::counted;
use crate::kubectl::decisions::record::EVENT;
use crate::kubectl::naming::shown;
use engine::object::Uid;
use engine::time::Time;
use proto::convert::Clock;
use proto::decision::v1beta1::{DecisionEvent, Phase};
use proto::graph::v1beta1::ExplainObjectResponse;
use proto::r#type::v1beta1::{ObjectRef, PropagationPolicy};
use proto::work::v1beta1::ItemKind;
use runtime::visible;
use serde::Deserialize;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::time::Duration;

#[cfg(test)]
mod tests;

/// Maximum number of differences of one side that are printed.
const LISTED_MAX: usize = 100;
/// Maximum length of a line of the file.
const LINE_MAX: u64 = 16 << 20;

/// A decision, by its id, the uid of its object, and the uids of the owners whose references it changes. The policy is
/// in the name of the action.
type Key = (String, String, String, BTreeSet<String>);

/// A decision, for people.
#[derive(Clone, Debug, PartialEq)]
struct Decision {
    action: String,
    target: ObjectRef,
    /// Nanoseconds since 1970.
    at: i128,
    /// The event, of the first decisions that only this version makes.
    event: Option<Box<DecisionEvent>>,
}

/// Decisions of one side that the other side has not made so far.
#[derive(Debug, Default)]
pub(super) struct Differences {
    there: BTreeMap<Key, Decision>,
    here: BTreeMap<Key, Decision>,
    same: usize,
    /// The number of decisions with their event.
    kept: usize,
}

/// One line of the file, as `--decisions` writes it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    kind: String,
    #[serde(default)]
    event: Said,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Said {
    phase: String,
    kind: String,
    decision_id: String,
    event_time: String,
    target: Target,
    propagation_policy: String,
    reasons: Vec<Ground>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Ground {
    related: Vec<Target>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Target {
    group: String,
    version: String,
    kind: String,
    namespace: String,
    name: String,
    uid: String,
}

impl Differences {
    /// Reads the decisions of a file.
    pub(super) fn of(path: &Path) -> Result<Differences, Problem> {
        let failed = |why: String| Problem::sentence(visible::line(&format!("--against {}: {why}", path.display())));
        let mut file = BufReader::new(File::open(path).map_err(|error| failed(error.to_string()))?);
        let (mut there, mut line) = (BTreeMap::new(), Vec::new());
        for number in 1.. {
            line.clear();
            let read = std::io::Read::take(&mut file, LINE_MAX).read_until(b'\n', &mut line);
            if read.map_err(|error| failed(error.to_string()))? == 0 {
                break;
            }
            let said: Line = serde_json::from_slice(&line).map_err(|error| {
                failed(format!(
                    "line {number} is not an event as --decisions or `decisions -o ndjson` prints it: {error}"
                ))
            })?;
            if said.kind != "DecisionEvent" || said.event.phase != Phase::Proposed.as_str_name() {
                continue;
            }
            let Said { kind, decision_id, event_time, target, propagation_policy, reasons, .. } = said.event;
            let at: k8s_openapi::jiff::Timestamp = event_time
                .parse()
                .map_err(|_| failed(format!("line {number} has no eventTime such as 2026-01-01T12:00:00Z")))?;
            let related = reasons.into_iter().flat_map(|ground| ground.related).map(|owner| owner.uid);
            let action = action(&kind, &propagation_policy);
            let decision = Decision { action, target: target.into(), at: at.as_nanosecond(), event: None };
            there.insert(decision.key(decision_id, related), decision);
        }
        Ok(Differences { there, ..Differences::default() })
    }

    /// Takes an event of this version.
    pub(super) fn take(&mut self, event: &DecisionEvent) {
        if event.phase() != Phase::Proposed {
            return;
        }
        let target = event.target.clone().unwrap_or_default();
        let at = event.event_time.map_or(0, |at| i128::from(at.seconds) * 1_000_000_000 + i128::from(at.nanos));
        let action = action(event.kind().as_str_name(), event.propagation_policy().as_str_name());
        let decision = Decision { action, target, at, event: None };
        let related = event.reasons.iter().flat_map(|reason| &reason.related).map(|owner| owner.uid.clone());
        let key = decision.key(event.decision_id.clone(), related);
        if self.here.contains_key(&key) {
            return;
        }
        let is_kept = self.kept < LISTED_MAX && !self.there.contains_key(&key);
        self.kept += usize::from(is_kept);
        let event = is_kept.then(|| Box::new(event.clone()));
        self.here.insert(key, Decision { event, ..decision });
    }

    /// Explains the differences. A second replay says why this version did not decide what the other one has decided.
    pub(super) fn explained(
        mut self,
        until: Option<i128>,
        again: impl FnOnce() -> Result<Replay, Problem>,
    ) -> Result<Explained, Problem> {
        let here = std::mem::take(&mut self.here);
        let mut only_here = Vec::new();
        for (key, decision) in here {
            match self.there.remove(&key) {
                Some(_) => self.same += 1,
                None => only_here.push(decision),
            }
        }
        let is_replayed = |decision: &Decision| until.is_none_or(|until| decision.at <= until);
        let mut only_there: Vec<Decision> = self.there.into_values().filter(is_replayed).collect();
        only_there.sort_by_key(|decision| decision.at);
        // Of decisions of the same time, those with their event come first.
        only_here.sort_by_key(|decision| (decision.at, decision.event.is_none()));
        let mut told = Vec::new();
        if !only_there.is_empty() {
            let mut replay = again()?;
            let origin = i128::from(replay.of.header().origin);
            for decision in only_there.iter().take(LISTED_MAX) {
                let since = u64::try_from(decision.at - origin).unwrap_or(0);
                replay.until = Some(Time::from_origin(Duration::from_nanos(since)));
                while replay.step().is_some() {}
                let uid = Uid::parse(&decision.target.uid);
                let answer = uid.and_then(|uid| object::of_uid(&replay.of.queries(), replay.clock(), &uid));
                told.push((decision.clone(), answer, replay.clock()));
            }
        }
        Ok(Explained { same: self.same, there: only_there.len(), told, here: only_here })
    }
}

/// The differences, with their reasons.
pub(super) struct Explained {
    same: usize,
    /// The number of decisions that this version has not made.
    there: usize,
    /// The first of them, and what this version says about their objects at that time.
    told: Vec<(Decision, Option<ExplainObjectResponse>, Clock)>,
    here: Vec<Decision>,
}

impl Explained {
    pub(super) fn is_empty(&self) -> bool {
        self.there == 0 && self.here.is_empty()
    }

    pub(super) fn text(&self, other: &Path) -> String {
        let other = visible::line(&other.display().to_string()).into_owned();
        let mut text = format!("{} in both\n", counted(self.same, "decision"));
        for (decision, answer, clock) in &self.told {
            let _infallible = writeln!(text, "only in {other}: {}", decision.words());
            let why = answer.as_ref().map(|answer| why::recorded(answer, seconds_since_1970(clock.calendar)));
            let why = why.unwrap_or_else(|| "the object is not in the recording at that time\n".to_owned());
            indented(&mut text, &why);
        }
        let more = self.there - self.told.len();
        if more > 0 {
            let _infallible = writeln!(text, "only in {other}: {more} more");
        }
        for decision in self.here.iter().take(LISTED_MAX) {
            let _infallible = writeln!(text, "only here: {}", decision.words());
            indented(&mut text, &decision.event.as_deref().map(why::decided).unwrap_or_default());
        }
        if let Some(more) = self.here.len().checked_sub(LISTED_MAX).filter(|more| *more > 0) {
            let _infallible = writeln!(text, "only here: {more} more");
        }
        text
    }

    pub(super) fn document(&self, schema: &Schema) -> Result<Document, Problem> {
        let mut there = Vec::new();
        for (decision, answer, _) in &self.told {
            let says = answer.as_ref().map(|answer| schema.value("ExplainObjectResponse", answer)).transpose()?;
            let mut value = decision.value();
            value["explanation"] = json!(says);
            there.push(value);
        }
        let mut here = Vec::new();
        for decision in self.here.iter().take(LISTED_MAX) {
            let event = decision.event.as_deref();
            let event = event.map(|event| schema.message(EVENT, event));
            let mut value = decision.value();
            value["event"] = json!(event.transpose()?);
            here.push(value);
        }
        let document = Document::new(Kind::Replay).with("same", json!(self.same)).with("onlyThere", json!(there));
        Ok(document
            .with("onlyThereCount", json!(self.there))
            .with("onlyHere", json!(here))
            .with("onlyHereCount", json!(self.here.len())))
    }
}

fn indented(text: &mut String, lines: &str) {
    lines.lines().for_each(|line| {
        let _infallible = writeln!(text, "    {line}");
    });
}

impl Decision {
    /// The owners count only if the decision changes references to them.
    fn key(&self, id: String, owners: impl Iterator<Item = String>) -> Key {
        let counts = self.action.ends_with("_references");
        (id, self.target.uid.clone(), self.action.clone(), owners.filter(|_| counts).collect())
    }

    fn words(&self) -> String {
        visible::line(&format!("{} {} at {}", self.action, shown(&self.target), self.time())).into_owned()
    }

    fn time(&self) -> String {
        k8s_openapi::jiff::Timestamp::from_nanosecond(self.at).map(|at| at.to_string()).unwrap_or_default()
    }

    fn value(&self) -> serde_json::Value {
        let ObjectRef { group, kind, namespace, name, uid, .. } = &self.target;
        json!({
            "action": self.action,
            "time": self.time(),
            "object": { "group": group, "kind": kind, "namespace": namespace, "name": name, "uid": uid },
        })
    }
}

impl From<Target> for ObjectRef {
    fn from(target: Target) -> ObjectRef {
        let Target { group, version, kind, namespace, name, uid } = target;
        ObjectRef { group, version, kind, namespace, name, uid, ..ObjectRef::default() }
    }
}

/// The name of an action, as the summary and the metrics have it, and the propagation policy of a deletion.
fn action(name: &str, policy: &str) -> String {
    let action = name.strip_prefix("ITEM_KIND_").unwrap_or(name).to_lowercase();
    if name != ItemKind::Delete.as_str_name() || policy == PropagationPolicy::Unspecified.as_str_name() {
        return action;
    }
    format!("{action} ({})", policy.strip_prefix("PROPAGATION_POLICY_").unwrap_or(policy).to_lowercase())
}
