//! `progress`: follows one cascade to its end.

use super::columns::{now, span};
use super::decisions::record::Record;
use super::decisions::stream::{Follow, Next};
use super::document::{self, Document, Kind};
use super::ending::{Answered, Ending, Problem};
use super::flags::{Format, Progress};
use super::naming::{resolve_one, shown};
use super::questions::answered;
use super::queue::is_open;
use super::service::{Need, Service};
use super::session::Session;
use crate::name::program;
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
const DEPTH_MAX: u32 = 64;
const PAGE_SIZE: i32 = 1000;
/// Maximum number of pages of the log to read for past events.
const PAGES_MAX: usize = 100;
/// The number of bookmarks in a row without open decisions that ends the command. Between the deletion of an owner and
/// the decisions about its dependents, nothing is open for a moment.
const QUIET_BOOKMARKS: u32 = 2;
/// The time limit without --timeout.
const FOR_EVER: Duration = Duration::from_secs(10 * 365 * 86_400);

pub(super) async fn run(flags: Progress) -> Answered {
    let mut session = Session::open(flags.asking, &FORMATS).await?;
    let named = match flags.root {
        Some(uid) => ObjectRef { uid, ..Default::default() },
        None => resolve_one(&mut session, &flags.object).await?.reference(),
    };
    let service = Service::connect(&mut session, Need::Leader).await?;
    follow(&mut session, service, named, flags.timeout).await
}

async fn follow(session: &mut Session, mut service: Service, named: ObjectRef, limit: Option<Duration>) -> Answered {
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
    let mut burn = Burn::new(&root, uids.collect(), now());
    for event in past(&mut service).await? {
        burn.event(&event);
    }
    // The stream sends their phase again.
    burn.open.clear();
    // A separate connection, so that calls and the stream do not wait for each other.
    let stream = Service::connect(session, Need::Leader).await?;
    let mut events = Follow::new(stream, Start::OpenThenFollow(true), Vec::new(), EventEncoding::Native);
    let bar = bar(burn.expected.len());
    let ended = watch(session, &mut service, &mut events, &mut burn, &bar, limit).await;
    bar.finish_and_clear();
    ended?;
    match session.format {
        Format::Json | Format::Yaml => {
            session.print_document(burn.document())?;
        }
        Format::Ndjson => session.print(&document::line(&burn.document().item()))?,
        Format::Table | Format::Wide | Format::Tree | Format::Name | Format::Dot | Format::Mermaid => {
            session.print(&burn.summary(now()))?;
        }
    }
    Ok(Ending::Fine)
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

async fn watch(
    session: &mut Session,
    service: &mut Service,
    events: &mut Follow,
    burn: &mut Burn,
    bar: &ProgressBar,
    limit: Option<Duration>,
) -> Result<(), Problem> {
    let deadline = sleep_until(Instant::now() + limit.unwrap_or(FOR_EVER));
    let mut deadline = std::pin::pin!(deadline);
    let mut quiet = 0;
    let mut told = None;
    loop {
        let next = tokio::select! {
            biased;
            () = &mut deadline => {
                return Err(Problem::TimedOut(format!("the cascade has not ended: {}", burn.line())));
            }
            next = events.next(session, true) => next?,
        };
        match next {
            Next::Records(records) => {
                quiet = 0;
                records.into_iter().for_each(|record| burn.take(record));
            }
            Next::Quiet => quiet += 1,
        }
        bar.set_position(burn.done() as u64);
        bar.set_message(burn.line());
        let line = burn.line();
        if events.is_complete() && told.as_ref() != Some(&line) && !stderr().is_terminal() {
            match session.format {
                Format::Ndjson => session.print(&document::line(&burn.document().item()))?,
                Format::Json | Format::Yaml => {}
                Format::Table | Format::Wide | Format::Tree | Format::Name | Format::Dot | Format::Mermaid => {
                    session.print(&format!("{line}\n"))?;
                }
            }
            told = Some(line);
        }
        if events.is_complete() && burn.open.is_empty() && quiet >= QUIET_BOOKMARKS {
            if is_gone(service, burn).await? {
                return Ok(());
            }
            if quiet == QUIET_BOOKMARKS {
                let words = format!(
                    "no decision is open, but the object still exists: {} why and stuck show the reason",
                    program()
                );
                bar.suspend(|| session.note(&format!("{}: {words}", name(&burn.root))));
            }
        }
    }
}

async fn is_gone(service: &mut Service, burn: &Burn) -> Result<bool, Problem> {
    let node: Option<Node> = service.get(&burn.root).await?;
    Ok(node.is_none_or(|node| !matches!(node.state(), NodeState::Live | NodeState::Terminating)))
}

fn bar(expected: usize) -> ProgressBar {
    let bar = ProgressBar::new(expected as u64);
    if let Ok(style) = ProgressStyle::with_template("{wide_bar} {pos}/{len} {msg}") {
        bar.set_style(style);
    }
    bar
}

/// The state of a cascade.
#[derive(Debug)]
struct Burn {
    root: ObjectRef,
    /// The objects that depended on the root at the start of the command.
    expected: BTreeSet<String>,
    since: i64,
    open: BTreeMap<String, Phase>,
    deleted: BTreeSet<String>,
    changed: BTreeSet<String>,
    failed_attempts: u64,
}

impl Burn {
    fn new(root: &ObjectRef, expected: BTreeSet<String>, since: i64) -> Burn {
        let (open, deleted, changed) = (BTreeMap::new(), BTreeSet::new(), BTreeSet::new());
        Burn { root: root.clone(), expected, since, open, deleted, changed, failed_attempts: 0 }
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
        if !root && !self.expected.contains(&target) && target != self.root.uid {
            return;
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
        if event.phase() == Phase::Succeeded {
            match event.kind() {
                ItemKind::Delete => self.deleted.insert(target),
                ItemKind::RemoveOwnerReferences | ItemKind::UnblockOwnerReferences => self.changed.insert(target),
                ItemKind::RemoveFinalizer | ItemKind::Unspecified => false,
            };
        }
    }

    fn done(&self) -> usize {
        self.deleted.len()
    }

    fn count(&self, phase: Phase) -> usize {
        self.open.values().filter(|open| **open == phase).count()
    }

    fn line(&self) -> String {
        let mut words = vec![format!("{} deleted", self.deleted.len())];
        let counts = [
            ("waiting", Phase::Proposed),
            ("held", Phase::Held),
            ("leased", Phase::Leased),
            ("retrying", Phase::Failed),
            ("parked", Phase::Parked),
        ];
        words.extend(counts.into_iter().filter_map(|(word, phase)| match self.count(phase) {
            0 => None,
            count => Some(format!("{count} {word}")),
        }));
        words.join(", ")
    }

    fn summary(&self, now: i64) -> String {
        let left = self.expected.difference(&self.deleted).count();
        let mut text = format!("{} and its dependents: {} deleted", name(&self.root), self.deleted.len());
        for (count, words) in
            [(self.changed.len(), "stay without a reference"), (self.failed_attempts as usize, "attempts failed")]
        {
            if count > 0 {
                text.push_str(&format!(", {count} {words}"));
            }
        }
        text.push_str(&format!(", in {}\n", span(now - self.since)));
        if left > 0 {
            text.push_str(&format!("{left} dependents stay, or another client deleted them\n"));
        }
        text
    }

    fn document(&self) -> Document {
        Document::new(Kind::CascadeProgress).with_fields(json!({
            "root": { "group": self.root.group, "kind": self.root.kind, "namespace": self.root.namespace, "name": self.root.name, "uid": self.root.uid },
            "dependents": self.expected.len(), "deleted": self.deleted.len(), "changed": self.changed.len(),
            "waiting": self.count(Phase::Proposed), "held": self.count(Phase::Held), "leased": self.count(Phase::Leased),
            "retrying": self.count(Phase::Failed), "parked": self.count(Phase::Parked), "failedAttempts": self.failed_attempts,
        }))
    }
}

fn name(object: &ObjectRef) -> String {
    if object.name.is_empty() { format!("uid {}", object.uid) } else { shown(object) }
}
