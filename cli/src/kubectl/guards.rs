//! Guards: their names on the command line, what the graph service knows about them, and the commands that release what
//! they hold.
//!
//! In reading order: [`create`] (`protect`, `budget`), [`manifest`] (a guard that a person has written), [`approve`],
//! [`release`], [`gates`]; `scope` (the flags of a scope as the spec of a resource), `patches` (changes of a spec),
//! `store` (guards at the API server).

use super::columns::{Cell, columns};
use super::naming::{by_type, place};
use super::service::Service;
use crate::counted::counted;
use crate::failure::Failure;
use crate::name::{command, kubectl, quoted};
use crate::remote::{self, Admin};
use engine::guard::{GuardId, GuardKind};
use engine::object::{HOLD_ANNOTATION, in_group};
use proto::admin::v1beta1::{Cascade, Guard};
use proto::graph::v1beta1::Reason;
use proto::graph::v1beta1::reason::Code;
use proto::r#type::v1beta1::ObjectRef;

pub(super) mod approve;
pub(super) mod create;
pub(super) mod gates;
pub(super) mod manifest;
mod patches;
pub(super) mod release;
pub(super) mod scope;
pub(super) mod store;
#[cfg(test)]
mod tests;

/// The bypass that a printed command asks for.
const BYPASS: &str = "--for 10m --reason 'released by hand'";

/// Reads `pause/NAME`, `pauses/NAME`, `pauses.ownergraph.dev/NAME` or a short name. `None` if the type is not a guard.
pub(super) fn guard_id(word: &str) -> Option<GuardId> {
    let (of, name) = word.split_once('/')?;
    let of = of.to_lowercase();
    let of = of.strip_suffix(&format!(".{}", store::GROUP)).unwrap_or(&of);
    let is = |kind: &GuardKind| of == kind.as_str() || of == kind.plural() || of == short(*kind);
    let kind = GuardKind::ALL.into_iter().find(is)?;
    Some(GuardId { kind, name: name.into() })
}

/// The short name, as in the definitions.
fn short(kind: GuardKind) -> &'static str {
    match kind {
        GuardKind::Pause => "ogp",
        GuardKind::Protection => "ogpr",
        GuardKind::Approval => "oga",
        GuardKind::Gate => "ogg",
        GuardKind::Budget => "ogb",
    }
}

/// The guards, as the graph service at this connection knows them.
pub(super) async fn known(admin: &mut Admin) -> Result<Vec<Guard>, Failure> {
    remote::within(remote::guards(admin)).await
}

/// A cascade that waits, and the names of the Approvals that it waits for.
pub(super) type Waiting = (Cascade, Vec<String>);

impl Service {
    /// The cascades that wait for approvals. Empty if the graph service does not show them to this caller: the printed
    /// command then lists them.
    pub(super) async fn waiting(&mut self) -> Vec<Waiting> {
        known(&mut self.admin).await.map(|guards| waiting(&guards)).unwrap_or_default()
    }

    /// The same for the [`release_command`] of these reasons. Nothing is asked if none of them names an Approval.
    pub(super) async fn waiting_for<'r>(&mut self, reasons: impl IntoIterator<Item = &'r Reason>) -> Vec<Waiting> {
        match reasons.into_iter().any(|reason| reason.code() == Code::AwaitingApproval) {
            true => self.waiting().await,
            false => Vec::new(),
        }
    }
}

/// The cascades that wait for approvals, each with the names of its Approvals.
pub(super) fn waiting(guards: &[Guard]) -> Vec<Waiting> {
    let mut all: Vec<Waiting> = Vec::new();
    for guard in guards.iter().filter(|guard| !guard.expired) {
        for cascade in guard.approval.iter().flat_map(|approval| &approval.waiting) {
            let name = name(guard).to_owned();
            match all
                .iter_mut()
                .find(|(known, _)| root(known).uid == root(cascade).uid && known.digest == cascade.digest)
            {
                Some((_, approvals)) => approvals.push(name),
                None => all.push((cascade.clone(), vec![name])),
            }
        }
    }
    all
}

fn root(cascade: &Cascade) -> ObjectRef {
    cascade.root.clone().unwrap_or_default()
}

/// The name of the object of a guard.
fn name(guard: &Guard) -> &str {
    guard.name.split_once('/').map_or(&guard.name, |(_, name)| name)
}

/// The command that ends what a guard holds. `object` is what is held. `waiting` has the cascades that wait.
pub(super) fn release_command(reason: &Reason, object: &ObjectRef, waiting: &[Waiting]) -> Option<String> {
    let code = reason.code();
    if code == Code::HoldAnnotation {
        let place = place(&object.namespace);
        return Some(format!("{} annotate {}{place} {HOLD_ANNOTATION}-", kubectl(), quoted(&by_type(object))));
    }
    if !matches!(code, Code::Paused | Code::Protected | Code::AwaitingApproval | Code::Gated | Code::OverBudget) {
        return None;
    }
    let (guard, rest) = reason.detail.split_once(": ")?;
    // The text about an Approval has the digest of the cascade.
    let is_it = |cascade: &Cascade| !cascade.digest.is_empty() && rest.contains(&cascade.digest);
    match waiting.iter().find(|(cascade, _)| is_it(cascade)) {
        Some((cascade, _)) if code == Code::AwaitingApproval => Some(approval_of(cascade)),
        Some(_) | None => release_of(guard),
    }
}

/// The command that ends what a guard holds. For an Approval, the command that lists its cascades.
fn release_of(guard: &str) -> Option<String> {
    let id = guard_id(guard)?;
    let guard = quoted(&id.to_string());
    Some(match id.kind {
        GuardKind::Pause | GuardKind::Protection | GuardKind::Budget => format!("{} release {guard}", command()),
        GuardKind::Gate => format!("{} release {guard} {BYPASS}", command()),
        GuardKind::Approval => format!("{} approve", command()),
    })
}

/// The command that approves a cascade.
fn approval_of(cascade: &Cascade) -> String {
    approve_command(&root(cascade), &cascade.digest)
}

/// The command that approves the cascade of a root.
pub(super) fn approve_command(root: &ObjectRef, digest: &str) -> String {
    let (of, place) = (quoted(&by_type(root)), place(&root.namespace));
    format!("{} approve {of}{place} --digest {}", command(), quoted(digest))
}

/// The totals of a cascade, the most numerous first: `12 objects: pods 8, secrets 4`.
fn extent(cascade: &Cascade) -> String {
    let least = if cascade.complete { "" } else { "more than " };
    format!("{least}{}: {}", counted(cascade.objects, "object"), totals(cascade))
}

fn totals(cascade: &Cascade) -> String {
    let mut totals: Vec<_> = cascade.totals.iter().collect();
    totals.sort_by_key(|total| std::cmp::Reverse(total.count));
    let named = |total: &&proto::admin::v1beta1::cascade::Total| {
        let of = total.resource.clone().unwrap_or_default();
        format!("{} {}", in_group(&of.resource, &of.group), total.count)
    };
    totals.iter().map(named).collect::<Vec<_>>().join(", ")
}

/// The state in a word.
fn state(guard: &Guard) -> &'static str {
    match (guard.expired, guard.effective) {
        (true, _) => "expired",
        (false, true) => "effective",
        (false, false) => "pending",
    }
}

fn reason(guard: &Guard) -> String {
    let by = if guard.actor.is_empty() { String::new() } else { format!(" ({})", guard.actor) };
    format!("{}{by}", guard.reason)
}

/// The guards as lines, with a heading.
pub(super) fn table(guards: &[Guard]) -> String {
    let cells = |guard: &Guard| {
        let expires = guard.expire_time.as_ref().map(ToString::to_string).unwrap_or_default();
        let id = guard_id(&guard.name).map_or_else(|| guard.name.clone(), |id| id.to_string());
        let plain =
            [state(guard).to_owned(), guard.held_items.to_string(), guard.scope.clone(), expires, reason(guard)];
        [vec![Cell::bold(id)], plain.map(Cell::plain).to_vec()].concat()
    };
    let heads = ["GUARD", "STATE", "HELD", "SCOPE", "EXPIRES", "REASON"];
    columns(&heads, &guards.iter().map(cells).collect::<Vec<_>>())
}

/// One line for each guard that is invalid, not effective, exceeded or waiting for an approval.
pub(super) fn remarks(guards: &[Guard]) -> Vec<String> {
    let mut all = Vec::new();
    for guard in guards.iter().filter(|guard| !guard.expired) {
        for (what, why) in [("not effective yet", &guard.pending), ("wrong", &guard.problem)] {
            if !why.is_empty() {
                all.push(format!("{}: {what}: {why}", guard.name));
            }
        }
        if let Some(budget) = guard.budget.as_ref().filter(|budget| budget.exceeded) {
            all.push(format!("{}: exceeded, with {} in its window", guard.name, counted(budget.spent, "deletion")));
        }
        let waiting = guard.approval.iter().flat_map(|approval| &approval.waiting).count();
        if waiting > 0 {
            let waiting = counted(waiting, "cascade");
            all.push(format!("{}: {waiting} without an approval; {} approve lists them", guard.name, command()));
        }
    }
    all
}
