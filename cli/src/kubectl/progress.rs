//! `progress`: follows one cascade to its end.

use super::columns::span;
use super::decisions::record::Record;
use super::decisions::stream::{Follow, Next};
use super::document::{self, Document, Kind};
use super::ending::{Answered, Ending, Problem};
use super::flags::{DEPTH_MAX, Format, Progress};
use super::naming::{command_about, resolve_one, shown};
use super::questions::{Walked, answered};
use super::queue::is_open;
use super::service::{Need, Service};
use super::session::Session;
use crate::counted::counted;
use crate::remote::PAGE_SIZE;
use indicatif::{ProgressBar, ProgressStyle};
use proto::decision::v1beta1::watch_decisions_request::Start;
use proto::decision::v1beta1::{DecisionEvent, DecisionFilter, EventEncoding, ListDecisionsRequest, Phase};
use proto::graph::v1beta1::{Node, NodeState};
use proto::r#type::v1beta1::ObjectRef;
use proto::work::v1beta1::ItemKind;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{IsTerminal as _, stderr};
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

#[cfg(test)]
mod tests;

const FORMATS: [Format; 4] = [Format::Table, Format::Ndjson, Format::Json, Format::Yaml];
/// Maximum number of pages of the log to read for past events.
const PAGES_MAX: usize = 100;
/// The number of bookmarks in a row without open decisions that ends the command. Between the deletion of an owner and
/// the decisions about its dependents, nothing is open for a moment.
const QUIET_BOOKMARKS: u32 = 2;

pub(super) async fn run(flags: Progress) -> Answered {
    let mut session = Session::open(flags.asking, &FORMATS).await?;
    let named = match flags.root {
        Some(uid) => ObjectRef { uid, ..Default::default() },
        None => resolve_one(&mut session, &flags.object).await?.reference(),
    };
    let service = Service::connect(&mut session, Need::Leader).await?;
    follow(&mut session, service, named, flags.timeout).await
}

async fn follow(session: &mut Session, mut service: Service, named: ObjectRef, limit: Duration) -> Answered {
    let answer = service.explain(&named).await?;
    let Some(node) = answer.and_then(|answer| answer.node) else {
        return Err(Problem::sentence(format!(
            "{} is not known, and the log has no cascade that it began",
            name(&named)
        )));
    };
    let root = node.r#ref.clone().unwrap_or(named);
    if node.state() == NodeState::Live {
        session.note(&format!("{} is not being deleted", name(&root)));
        return Ok(Ending::Fine);
    }
    let walked = service.dependents(&root, DEPTH_MAX).await?.unwrap_or_default();
    let uids = walked.found.iter().filter_map(|found| Some(found.node.r#ref.as_ref()?.uid.clone()));
    let mut burn = Burn::new(&root, uids.collect());
    for event in past(&mut service).await? {
        burn.event(&event);
    }
    burn.begin(Instant::now());
    // The stream sends their phase again.
    burn.open.clear();
    // A separate connection, so that calls and the stream do not wait for each other.
    let stream = Service::connect(session, Need::Leader).await?;
    let mut events = Follow::new(stream, Start::OpenThenFollow(true), Vec::new(), EventEncoding::Native);
    let bar = bar("{wide_bar} {msg}");
    let ended = watch(session, &mut service, &mut events, &mut burn, &bar, limit).await;
    bar.finish_and_clear();
    let has_ended = ended?;
    // Some deletions were reported between the first read of the log and the start of the stream.
    for event in past(&mut service).await? {
        burn.event(&event);
    }
    burn.look(&service.dependents(&burn.root, DEPTH_MAX).await?.unwrap_or_default());
    match session.format {
        Format::Json | Format::Yaml => {
            session.print_document(burn.document())?;
        }
        Format::Ndjson => session.print(&document::line(&burn.document().item()))?,
        Format::Table | Format::Wide | Format::Tree | Format::Name | Format::Dot | Format::Mermaid | Format::Html => {
            if has_ended {
                session.print(&burn.summary())?;
            }
        }
    }
    if !has_ended {
        return Err(Problem::TimedOut(format!("the cascade has not ended: {}", burn.line())));
    }
    Ok(if burn.left.is_empty() { Ending::Fine } else { Ending::Findings })
}

/// Past events from the log, the newest first, because the objects of one cascade are mostly deleted together.
async fn past(service: &mut Service) -> Result<Vec<DecisionEvent>, Problem> {
    let done = DecisionFilter { phases: vec![Phase::Succeeded.into()], ..Default::default() };
    let mut request = ListDecisionsRequest { include: vec![done], page_size: PAGE_SIZE, ..Default::default() };
    let mut found = Vec::new();
    for _ in 0..PAGES_MAX {
        let page = answered(service.within, service.decisions.list_decisions(request.clone())).await?;
        found.extend(page.events);
        if page.next_page_token.is_empty() {
            break;
        }
        request.page_token = page.next_page_token;
    }
    Ok(found)
}

/// Whether the cascade has ended within the limit.
async fn watch(
    session: &mut Session,
    service: &mut Service,
    events: &mut Follow,
    burn: &mut Burn,
    bar: &ProgressBar,
    limit: Duration,
) -> Result<bool, Problem> {
    let deadline = sleep_until(Instant::now() + limit);
    let mut deadline = std::pin::pin!(deadline);
    let mut quiet = 0;
    let mut told = None;
    loop {
        let next = tokio::select! {
            biased;
            () = &mut deadline => return Ok(false),
            next = events.next(session, true) => next?,
        };
        match next {
            Next::Records(records) => {
                quiet = 0;
                records.into_iter().for_each(|record| burn.take(record));
            }
            Next::Quiet => quiet += 1,
        }
        bar.set_length(burn.met.len() as u64);
        bar.set_position(burn.deleted.len() as u64);
        let (line, pace) = (burn.line(), burn.pace(Instant::now()));
        bar.set_message(format!("{line}{pace}"));
        if events.is_complete() && told.as_ref() != Some(&line) && !stderr().is_terminal() {
            if session.format == Format::Ndjson {
                session.print(&document::line(&burn.document().item()))?;
            } else if !matches!(session.format, Format::Json | Format::Yaml) {
                session.print(&format!("{line}{pace}\n"))?;
            }
            told = Some(line);
        }
        if events.is_complete() && burn.open.is_empty() && quiet >= QUIET_BOOKMARKS {
            let is_there = service.has(&burn.root).await?;
            if !is_there && !ends_by_itself(service, &burn.root).await? {
                return Ok(true);
            }
            if is_there && quiet == QUIET_BOOKMARKS {
                let words = "no decision is open, but the object still exists; for the reason, run";
                bar.suspend(|| {
                    session.note(&format!("{}: {words} {}", name(&burn.root), command_about("why", &burn.root)))
                });
            }
        }
    }
}

/// Whether a dependent is in its grace period: it is terminating, and no finalizer keeps it.
async fn ends_by_itself(service: &mut Service, root: &ObjectRef) -> Result<bool, Problem> {
    let walked = service.dependents(root, DEPTH_MAX).await?.unwrap_or_default();
    let is_ending = |node: &Node| node.state() == NodeState::Terminating && node.finalizers.is_empty();
    Ok(walked.found.iter().any(|found| is_ending(&found.node)))
}

/// A bar with this template of indicatif.
pub(super) fn bar(template: &str) -> ProgressBar {
    let bar = ProgressBar::new(0);
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar
}

/// The state of a cascade.
#[derive(Debug)]
struct Burn {
    root: ObjectRef,
    /// The objects that depended on the root when the command started, or were decided on.
    met: BTreeSet<String>,
    /// The times of the first and the last event, in seconds of the Unix epoch.
    span: Option<(i64, i64)>,
    /// When the command began to follow, and how many objects had been deleted before.
    began: Option<(Instant, usize)>,
    open: BTreeMap<String, Phase>,
    deleted: BTreeSet<String>,
    changed: BTreeSet<String>,
    /// The dependents that are still there at the end, and whether each is terminating.
    left: Vec<(ObjectRef, bool)>,
    failed_attempts: u64,
}

impl Burn {
    fn new(root: &ObjectRef, met: BTreeSet<String>) -> Burn {
        let (open, deleted, changed) = (BTreeMap::new(), BTreeSet::new(), BTreeSet::new());
        let left = Vec::new();
        Burn { root: root.clone(), met, span: None, began: None, open, deleted, changed, left, failed_attempts: 0 }
    }

    /// Takes in the dependents that are still there. A finalizer can keep an object whose deletion was carried out. An
    /// object that lost its reference is meant to stay.
    fn look(&mut self, walked: &Walked) {
        for node in walked.found.iter().map(|found| &found.node) {
            let object = node.r#ref.clone().unwrap_or_default();
            let is_there = matches!(node.state(), NodeState::Live | NodeState::Terminating);
            if is_there && !self.changed.contains(&object.uid) {
                self.deleted.remove(&object.uid);
                self.met.insert(object.uid.clone());
                self.left.push((object, node.state() == NodeState::Terminating));
            }
        }
    }

    fn terminating(&self) -> usize {
        self.left.iter().filter(|(_, terminating)| *terminating).count()
    }

    /// Measures the pace from now on.
    fn begin(&mut self, now: Instant) {
        self.began = Some((now, self.deleted.len()));
    }

    fn take(&mut self, record: Record) {
        match record {
            Record::Event(event) => self.event(&event),
            Record::Cloud(_) => {}
            // The stream sends all open decisions again.
            Record::Gap(_) => self.open.clear(),
        }
    }

    fn event(&mut self, event: &DecisionEvent) {
        let target = event.target.clone().unwrap_or_default().uid;
        let root = event.root.as_ref().is_some_and(|root| root.uid == self.root.uid);
        if !root && !self.met.contains(&target) && target != self.root.uid {
            return;
        }
        if let Some(at) = event.event_time.as_ref().map(|at| at.seconds) {
            self.span = Some(self.span.map_or((at, at), |(first, last)| (first.min(at), last.max(at))));
        }
        if event.kind() == ItemKind::Delete && target != self.root.uid {
            self.met.insert(target.clone());
        }
        if is_open(event.phase()) {
            let phase = if event.phase() == Phase::Released { Phase::Proposed } else { event.phase() };
            self.open.insert(event.decision_id.clone(), phase);
        } else {
            self.open.remove(&event.decision_id);
        }
        if event.phase() == Phase::Failed {
            self.failed_attempts += 1;
        }
        if event.phase() == Phase::Succeeded && target != self.root.uid {
            match event.kind() {
                ItemKind::Delete => self.deleted.insert(target),
                ItemKind::RemoveOwnerReferences | ItemKind::UnblockOwnerReferences => self.changed.insert(target),
                ItemKind::RemoveFinalizer | ItemKind::Unspecified => false,
            };
        }
    }

    fn count(&self, phase: Phase) -> usize {
        self.open.values().filter(|open| **open == phase).count()
    }

    fn line(&self) -> String {
        let mut words = vec![format!("{} of {} deleted", self.deleted.len(), self.met.len())];
        let counts = [
            ("waiting", Phase::Proposed),
            ("held", Phase::Held),
            ("leased", Phase::Leased),
            ("retrying", Phase::Failed),
            ("parked", Phase::Parked),
        ];
        let counts = counts.map(|(word, phase)| (word, self.count(phase)));
        let counts = counts.into_iter().chain([("terminating", self.terminating())]);
        words.extend(counts.filter(|(_, count)| *count > 0).map(|(word, count)| format!("{count} {word}")));
        words.join(", ")
    }

    /// Deletions per second since the command began, and the seconds that the rest takes at this pace.
    fn rate(&self, now: Instant) -> Option<(f64, f64)> {
        let (began, before) = self.began?;
        let seconds = now.duration_since(began).as_secs_f64();
        let done = self.deleted.len().saturating_sub(before);
        let rate = done as f64 / seconds;
        let left = self.met.len().saturating_sub(self.deleted.len());
        (seconds >= 1.0 && done > 0).then(|| (rate, left as f64 / rate))
    }

    /// `, 60/s, about 5s left`
    fn pace(&self, now: Instant) -> String {
        let words = |(rate, left): (f64, f64)| format!(", {rate:.0}/s, about {} left", span(left.ceil() as i64));
        self.rate(now).map(words).unwrap_or_default()
    }

    fn summary(&self) -> String {
        let stay = |count: usize| format!("{count} {}", if count == 1 { "stays" } else { "stay" });
        let mut words = vec![format!("{} and its dependents: {}", name(&self.root), self.line())];
        words.extend((!self.changed.is_empty()).then(|| format!("{} without a reference", stay(self.changed.len()))));
        words
            .extend((self.failed_attempts > 0).then(|| format!("{} failed", counted(self.failed_attempts, "attempt"))));
        words.extend(self.span.map(|(first, last)| format!("in {}", span(last - first))));
        let mut text = format!("{}\n", words.join(", "));
        let remain = self.left.len() - self.terminating();
        let others = self.met.difference(&self.deleted).count().saturating_sub(self.left.len());
        if remain > 0 {
            text.push_str(&format!("{} without being deleted\n", stay(remain)));
        }
        if let Some((object, _)) = self.left.iter().max_by_key(|(_, terminating)| *terminating) {
            text.push_str(&format!("for the reason, run {}\n", command_about("why", object)));
        }
        if others > 0 {
            text.push_str(&format!("{others} went otherwise, or do not depend on it any more\n"));
        }
        text
    }

    fn document(&self) -> Document {
        let rate = self.rate(Instant::now());
        Document::new(Kind::CascadeProgress).with_fields(json!({
            "root": { "group": self.root.group, "kind": self.root.kind, "namespace": self.root.namespace, "name": self.root.name, "uid": self.root.uid },
            "dependents": self.met.len(), "deleted": self.deleted.len(), "changed": self.changed.len(),
            "waiting": self.count(Phase::Proposed), "held": self.count(Phase::Held), "leased": self.count(Phase::Leased),
            "retrying": self.count(Phase::Failed), "parked": self.count(Phase::Parked),
            "left": self.left.len(), "terminating": self.terminating(), "failedAttempts": self.failed_attempts,
            "deletionsPerSecond": rate.map(|(rate, _)| rate), "secondsLeft": rate.map(|(_, left)| left.ceil()),
        }))
    }
}

fn name(object: &ObjectRef) -> String {
    if object.name.is_empty() { format!("uid {}", object.uid) } else { shown(object) }
}
