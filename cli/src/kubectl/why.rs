//! `why`: the collector's verdict on one object, in sentences.

use super::columns::{now, span};
use super::document::{Document, Kind, Schema};
use super::ending::{Answered, Ending};
use super::flags::{Format, Why};
use super::guards::{self, Waiting};
use super::naming::{Found, command_about, resolve_one, shown};
use super::service::{Need, Service};
use super::session::Session;
use super::tree::table::standing;
use crate::counted::are;
use crate::name::{command, command_here};
use namespace::Condition;
use proto::decision::v1beta1::DecisionEvent;
use proto::graph::v1beta1::reason::Code;
use proto::graph::v1beta1::{Departure, Edge, ExplainObjectResponse, Node, NodeState, PendingWork, Reason, Verdict};
use proto::r#type::v1beta1::{ObjectRef, ReplicaRole};
use runtime::visible;
use serde_json::json;

mod namespace;
#[cfg(test)]
mod tests;

const FORMATS: [Format; 3] = [Format::Table, Format::Json, Format::Yaml];
/// Maximum number of owners between an object and the root that decides its fate. Each is one call.
const CHAIN_MAX: usize = 16;
/// Maximum number of objects that one line names.
const NAMED_MAX: usize = 3;

pub(super) async fn run(flags: Why) -> Answered {
    let mut session = Session::open(flags.asking, &FORMATS).await?;
    let named = resolve_one(&mut session, &flags.object).await?;
    let mut service = Service::connect(&mut session, Need::Verdict).await?;
    let reference = named.reference();
    let Some(answer) = service.explain(&reference).await? else {
        let left_out = matches!(named.found, Found::There { .. }) && service.leaves_out(&reference).await?;
        return unknown(&session, &reference, &named.found, left_out);
    };
    session.lacks(answer.meta.as_ref().map(|meta| meta.unsynced.as_slice()).unwrap_or_default());
    let conditions = if is_namespace(&reference) && of_contents(&answer) && !session.is_file() {
        namespace::conditions(&mut session, &reference.name).await
    } else {
        Vec::new()
    };
    let chain = chain(&mut service, &answer).await;
    let waiting = service.waiting_for(&answer.reasons).await;
    if matches!(session.format, Format::Json | Format::Yaml) {
        let fields = Schema::load()?.value("ExplainObjectResponse", &answer)?;
        let document = Document::new(Kind::Explanation).with_fields(fields).with("conditions", json!(conditions));
        session.print_document(document.with("chain", Schema::load()?.values("Node", &nodes(&chain))?))?;
    } else {
        session.print(&text(&answer, &chain, &conditions, &waiting, now()))?;
    }
    Ok(ending(answer.verdict()))
}

/// The owner that decides the fate of an object: it owns it, waits for its deletion, or is gone.
fn decisive(answer: &ExplainObjectResponse) -> Option<ObjectRef> {
    let departed = answer.departure.iter().flat_map(|departure| &departure.reasons);
    let reason = answer.reasons.iter().chain(departed).next()?;
    let decides = matches!(reason.code(), Code::SolidOwner | Code::OwnersWaiting | Code::OwnersAbsent);
    reason.related.first().filter(|_| decides).cloned()
}

/// The owners from the nearest one up to the root, as far as the caller may see them.
async fn chain(service: &mut Service, answer: &ExplainObjectResponse) -> Vec<ExplainObjectResponse> {
    let mut chain: Vec<ExplainObjectResponse> = Vec::new();
    let mut met = vec![answer.node.clone().unwrap_or_default().r#ref.unwrap_or_default().uid];
    while let Some(owner) = decisive(chain.last().unwrap_or(answer)).filter(|owner| !met.contains(&owner.uid)) {
        if chain.len() == CHAIN_MAX {
            break;
        }
        let Ok(Some(next)) = service.explain(&owner).await else { break };
        met.push(owner.uid);
        chain.push(next);
    }
    chain
}

fn nodes(chain: &[ExplainObjectResponse]) -> Vec<Node> {
    chain.iter().map(|answer| answer.node.clone().unwrap_or_default()).collect()
}

/// The line about the root, if it is not the nearest owner.
fn root_line(chain: &[ExplainObjectResponse], now: i64) -> Option<(&'static str, String)> {
    let names: Vec<ObjectRef> = nodes(chain).into_iter().map(|node| node.r#ref.unwrap_or_default()).collect();
    let ([between @ .., root], [_, .., last]) = (names.as_slice(), chain) else { return None };
    if decisive(last).is_some() {
        return Some(("above", format!("{}, and further owners", some(&names, names.len()))));
    }
    let headline = headline(last, &last.node.clone().unwrap_or_default(), now);
    Some(("root", format!("{} {headline}; through {}", shown(root), some(between, between.len()))))
}

/// The exit code: blocked, undecided, held and parked objects are findings.
fn ending(verdict: Verdict) -> Ending {
    match verdict {
        Verdict::Blocked | Verdict::Undecided | Verdict::Held | Verdict::Parked => Ending::Findings,
        Verdict::Unspecified
        | Verdict::Kept
        | Verdict::Unowned
        | Verdict::Collectable
        | Verdict::InProgress
        | Verdict::Gone => Ending::Fine,
    }
}

fn unknown(session: &Session, object: &ObjectRef, found: &Found, left_out: bool) -> Answered {
    if matches!(session.format, Format::Json | Format::Yaml) {
        let at =
            json!({ "group": object.group, "kind": object.kind, "namespace": object.namespace, "name": object.name });
        session.print_document(
            Document::new(Kind::Explanation)
                .with("node", json!({ "ref": at }))
                .with("known", false.into())
                .with("ignored", left_out.into()),
        )?;
    } else {
        let text = match found {
            Found::Absent if session.is_file() => not_in_file(object),
            Found::Absent | Found::There { .. } | Found::Unreadable(_) => unknown_text(object, found, left_out),
        };
        session.print(&text)?;
    }
    Ok(match found {
        Found::Absent => Ending::Absent,
        Found::There { .. } | Found::Unreadable(_) => Ending::Fine,
    })
}

fn not_in_file(object: &ObjectRef) -> String {
    let what = shown(object);
    format!(
        "{what} was never seen\n  because  the snapshot does not contain it\n  next     check the name and the namespace\n"
    )
}

/// `left_out` means that the configuration excludes the object's collection from the graph.
fn unknown_text(object: &ObjectRef, found: &Found, left_out: bool) -> String {
    let what = shown(object);
    match found {
        Found::There { .. } if left_out => format!(
            "{what} is not collected\n  because  its type is ignored by configuration (--ignore-resources), or cannot be watched; the finalizers foregroundDeletion and orphan stay on it\n  next     delete it in background, and remove such a finalizer by hand; or have its type watched\n"
        ),
        Found::There { .. } => format!(
            "{what} is there, and the graph has not seen it yet\n  next     ask again in a moment; if this stays so, its type is not watched\n"
        ),
        Found::Absent => format!(
            "{what} was never seen\n  because  neither the API server nor the graph knows it; the graph remembers for ten minutes what went\n  next     check the name and the namespace\n"
        ),
        Found::Unreadable(why) => format!(
            "{what} is not known to the graph, and cannot be read with these credentials\n  because  {}\n  next     check the name, the namespace and the rights\n",
            visible::line(why)
        ),
    }
}

/// The answer about an object of a recording, `now` in seconds of the Unix epoch.
pub(super) fn recorded(answer: &ExplainObjectResponse, now: i64) -> String {
    text(answer, &[], &[], &[], now)
}

/// Why a decision was made: its reasons, and the owners of its object as they were.
pub(super) fn decided(event: &DecisionEvent) -> String {
    let mut text = String::new();
    event.reasons.iter().for_each(|reason| line(&mut text, "because", &reason_words(reason)));
    event.owners.iter().for_each(|edge| line(&mut text, "owner", &owner_words(edge)));
    let more = (event.owner_count as usize).saturating_sub(event.owners.len());
    if more > 0 {
        line(&mut text, "owner", &format!("and {more} more"));
    }
    text
}

/// The whole answer. `waiting` has the cascades that wait for approvals. `now` is in seconds of the Unix epoch.
fn text(
    answer: &ExplainObjectResponse,
    chain: &[ExplainObjectResponse],
    conditions: &[Condition],
    waiting: &[Waiting],
    now: i64,
) -> String {
    let node = answer.node.clone().unwrap_or_default();
    let object = node.r#ref.clone().unwrap_or_default();
    let mut text = format!("{} {}\n", shown(&object), headline(answer, &node, now));
    for reason in &answer.reasons {
        line(&mut text, "because", &format!("{}{}", reason_words(reason), ago(reason.since.as_ref(), now)));
        if let Some(command) = guards::release_command(reason, &object, waiting) {
            line(&mut text, "release", &command);
        }
    }
    for reason in answer.departure.iter().flat_map(|departure| &departure.reasons) {
        line(&mut text, "because", &reason_words(reason));
    }
    for Condition { kind, message } in conditions {
        line(&mut text, "says", &format!("{kind}: {message}"));
    }
    for edge in &answer.owners {
        line(&mut text, "owner", &owner_words(edge));
    }
    let more = (node.owner_count as usize).saturating_sub(answer.owners.len());
    if more > 0 && !answer.owners.is_empty() {
        line(&mut text, "owner", &format!("and {more} more; {} lists all of them", command_about("owners", &object)));
    }
    if let Some((head, words)) = root_line(chain, now) {
        line(&mut text, head, &words);
    }
    if let Some(work) = &answer.work {
        line(&mut text, "decided", &work_words(work, now));
    }
    if let Some(next) = next(answer, &node) {
        line(&mut text, "next", &next);
    }
    text
}

fn line(text: &mut String, head: &str, words: &str) {
    text.push_str(&format!("  {head:<9}{}\n", visible::line(words)));
}

fn headline(answer: &ExplainObjectResponse, node: &Node, now: i64) -> String {
    match answer.verdict() {
        Verdict::Kept if node.state() == NodeState::Virtual => {
            "is there, and its collection has not shown it yet".to_owned()
        }
        Verdict::Kept => "stays".to_owned(),
        Verdict::Unowned => "stays: it has no owners, so the collector never deletes it".to_owned(),
        Verdict::Collectable if answer.work.is_none() => "would be deleted".to_owned(),
        Verdict::Collectable if has_executor(answer) => "is being deleted: an executor has it".to_owned(),
        Verdict::Collectable => "will be deleted: the decision waits to be granted".to_owned(),
        Verdict::Undecided => "stays for now: it is not known yet whether to delete it".to_owned(),
        Verdict::Held => "would be deleted, but is held".to_owned(),
        Verdict::InProgress if node.orphaning_dependents => {
            format!("is being deleted{}: its dependents lose their reference first, and stay", marked(node, now))
        }
        Verdict::InProgress => format!("is going{}", marked(node, now)),
        Verdict::Blocked if node.deleting_dependents => {
            format!("is being deleted{}, and waits until its dependents are deleted", marked(node, now))
        }
        Verdict::Blocked if of_contents(answer) => {
            format!("is terminating{}, and is removed when it is empty", marked(node, now))
        }
        Verdict::Blocked => format!("is terminating{}, and blocked", marked(node, now)),
        Verdict::Parked => "should be deleted, but the API server refuses the request as invalid".to_owned(),
        Verdict::Gone => went(answer.departure.as_ref(), now),
        Verdict::Unspecified => "has a verdict that this version does not know; upgrade it".to_owned(),
    }
}

/// A replica that stands by, and a listing of this process, check no owners.
fn is_of_leader(answer: &ExplainObjectResponse) -> bool {
    let role = answer.meta.as_ref().map_or(ReplicaRole::Unspecified, |meta| meta.role());
    !matches!(role, ReplicaRole::Standby | ReplicaRole::Syncing)
}

fn of_contents(answer: &ExplainObjectResponse) -> bool {
    answer.reasons.iter().any(|reason| reason.code() == Code::ContentsRemain)
}

fn is_namespace(object: &ObjectRef) -> bool {
    object.group.is_empty() && object.kind == "Namespace"
}

fn has_executor(answer: &ExplainObjectResponse) -> bool {
    answer.work.as_ref().is_some_and(|work| !work.executor.is_empty())
}

fn marked(node: &Node, now: i64) -> String {
    node.delete_time
        .as_ref()
        .map(|at| format!(", marked for deletion {} ago", span(now - at.seconds)))
        .unwrap_or_default()
}

fn went(departure: Option<&Departure>, now: i64) -> String {
    let Some(departure) = departure else { return "is gone".to_owned() };
    let when = departure.time.as_ref().map(|at| format!(" {} ago", span(now - at.seconds))).unwrap_or_default();
    if departure.by_us {
        format!("was deleted{when} by the collector")
    } else {
        format!("was deleted{when}, not by the collector")
    }
}

fn ago(since: Option<&prost_types::Timestamp>, now: i64) -> String {
    since.map(|since| format!(", since {}", span(now - since.seconds))).unwrap_or_default()
}

fn owner_words(edge: &Edge) -> String {
    let reference = edge.reference.clone().unwrap_or_default();
    let owner = edge.owner.as_ref().map_or_else(|| format!("{} {}", reference.kind, reference.name), shown);
    let mut words = vec![standing(edge.standing())];
    if reference.controller == Some(true) {
        words.push("controller");
    }
    if reference.block_owner_deletion == Some(true) {
        words.push("blocking");
    }
    format!("{owner} ({})", words.join(", "))
}

fn work_words(work: &PendingWork, now: i64) -> String {
    let when = work.decide_time.as_ref().map(|at| format!(" {} ago", span(now - at.seconds))).unwrap_or_default();
    let mut words = vec![format!("{}{when}", work.action)];
    match (work.executor.as_str(), &work.start_time) {
        ("", _) => {}
        (executor, Some(at)) => words.push(format!("{executor} began {} ago", span(now - at.seconds))),
        (executor, None) => words.push(format!("{executor} has it")),
    }
    if work.attempts > 1 {
        words.push(format!("attempt {}", work.attempts));
    }
    if let Some(at) = &work.retry_time {
        words.push(format!("retried in {}", span(at.seconds - now)));
    }
    words.join(", ")
}

/// The user's next step, if the answer does not already show it.
fn next(answer: &ExplainObjectResponse, node: &Node) -> Option<String> {
    let first = answer.reasons.first()?;
    let words = match (answer.verdict(), first.code()) {
        (Verdict::Kept, Code::SolidOwner) => "it is deleted when the last of its owners is gone",
        (Verdict::Held, Code::InvalidReference) => "correct the reference, or remove it",
        (Verdict::Held, Code::TooManyReferences) => {
            "remove references: the object is not collected while it has so many"
        }
        (Verdict::Undecided, Code::OwnerKindUnresolved) => {
            "install the definition of the owner's kind, or remove the reference"
        }
        (Verdict::Undecided, Code::CollectionUnsynced) => {
            "the collector decides as soon as that collection can be listed"
        }
        (Verdict::Undecided, Code::OwnerUnverified) if !is_of_leader(answer) => {
            "ask the leader of a graph service: only it checks whether the owner exists"
        }
        (Verdict::Undecided, Code::OwnerUnverified) => "no action needed: the collector is checking the owner",
        (Verdict::Undecided, Code::OwnerUnreadable) => "allow the collector to read the owner; it retries by itself",
        (Verdict::Blocked | Verdict::InProgress, Code::CollectionUnsynced) => {
            "the deletion continues as soon as that collection can be listed: it may contain dependents"
        }
        (Verdict::Blocked, Code::FinalizerPresent) => {
            "find out why the controller of that finalizer does not remove it; removing it by hand skips its cleanup"
        }
        (Verdict::Blocked, Code::BlockingDependents) if node.deleting_dependents => {
            return Some(format!("{} stuck shows the objects that must be deleted first", command_here()));
        }
        (Verdict::Blocked, Code::ContentsRemain) if node.r#ref.as_ref().is_some_and(is_namespace) => {
            return Some(format!(
                "{} stuck -n with its name lists the objects in it that make no progress, and why",
                command()
            ));
        }
        (_, Code::NoExecutor) => "start an executor-service, or find out why none is connected",
        (_, Code::Forbidden) => "grant the executors the right",
        (_, Code::Undone) => {
            "find the controller or webhook that restores it: kubectl get -o yaml --show-managed-fields"
        }
        (_, Code::AdmissionDenied) => "ask the operator of that webhook or policy",
        _ => return None,
    };
    Some(words.to_owned())
}

/// One reason, in words.
pub(super) fn reason_words(reason: &Reason) -> String {
    let who = related(reason);
    let detail = reason.detail.as_str();
    let about = |words: &str| if detail.is_empty() { words.to_owned() } else { format!("{words}: {detail}") };
    // The state of a collection is additional information.
    let beside = |words: String| if detail.is_empty() { words } else { format!("{words} ({detail})") };
    let (verb_s, verb_have) = if reason.related_count == 1 { ("s", "has") } else { ("", "have") };
    match reason.code() {
        Code::Unspecified => about("for a reason that this version does not know"),
        Code::SolidOwner => format!("{who} own{verb_s} it"),
        Code::OwnerUnverified => beside(format!("whether {who} exist{verb_s} is not known yet")),
        Code::OwnerKindUnresolved => {
            beside(format!("the API server does not serve the kind of {}", or(&who, "the owner")))
        }
        Code::CollectionUnsynced if who.is_empty() => about("a collection cannot be listed"),
        Code::CollectionUnsynced => beside(format!("the collection of {who} cannot be listed")),
        Code::Paused | Code::Protected | Code::AwaitingApproval | Code::Gated | Code::OverBudget => {
            // A guard is named by its resource. Guards that cannot be read are a sentence.
            let named = detail.split_once(": ").is_some_and(|(guard, _)| guard.contains('/'));
            if named { format!("held by {detail}{}", until(reason)) } else { about("held") }
        }
        Code::FinalizerPresent => format!("finalizer {detail}"),
        Code::BlockingDependents => {
            format!("{who} {} to be deleted first", if reason.related_count == 1 { "has" } else { "have" })
        }
        Code::Cycle => "it is in a cycle of blocking references, which the collector is about to break".to_owned(),
        Code::CollectionInDoubt | Code::Undone => detail.to_owned(),
        Code::Forbidden => about("the executors lack a right"),
        Code::AdmissionDenied => about("a webhook or an admission policy refuses"),
        Code::Backoff if detail.is_empty() => "an attempt failed, and is retried".to_owned(),
        Code::Backoff => format!("{detail}; the attempt is retried"),
        Code::NoExecutor if detail.is_empty() => "no executor is connected".to_owned(),
        Code::NoExecutor => detail.to_owned(),
        Code::AwaitingOwnWrite => "its deletion was accepted, and the watch has not shown it yet".to_owned(),
        Code::InvalidReference => about(&format!("the reference to {} is invalid", or(&who, "an owner"))),
        Code::TooManyReferences => about("it has more owner references than the collector reads"),
        Code::HoldAnnotation => about("an annotation holds it"),
        Code::OwnersAbsent => beside(format!("{who} {} gone", if reason.related_count == 1 { "is" } else { "are" })),
        Code::OwnersWaiting => format!("{who} wait{verb_s} for its deletion"),
        Code::DependentsToOrphan => format!("{who} {verb_have} yet to lose a reference"),
        Code::OwnerUnreadable => beside(format!("reads of {} fail", or(&who, "the owner"))),
        Code::Throttled => about("the API server answers 429 (Too Many Requests)"),
        Code::NotLeading => about("this replica does not lead; the leader carries out decisions"),
        Code::GrantsStopped => about("nothing is carried out at the moment"),
        Code::ObserveOnly => "the collector only observes, and carries nothing out".to_owned(),
        Code::GracePeriod => "it is removed when its grace period is over".to_owned(),
        Code::NeverObserved => format!("only references to it are known: {who} {verb_have} one"),
        Code::Deleted => about("it was deleted"),
        Code::ContentsRemain if reason.related_count == 0 => {
            "the API server reports that it is not empty, but the graph has no object in it".to_owned()
        }
        Code::ContentsRemain if reason.related.is_empty() => {
            format!("{} in it: {detail}", are(reason.related_count, "object"))
        }
        Code::ContentsRemain => {
            let inside = beside(format!("{} in it", are(reason.related_count, "object")));
            format!("{inside}, of which finalizers keep {}", some(&reason.related, reason.related.len()))
        }
    }
}

fn until(reason: &Reason) -> String {
    reason.until.as_ref().map(|until| format!(", until {until}")).unwrap_or_default()
}

/// The first of these objects, and the number of further ones if there are `count` objects.
fn some(objects: &[ObjectRef], count: usize) -> String {
    let named: Vec<String> = objects.iter().take(NAMED_MAX).map(shown).collect();
    match count.saturating_sub(named.len()) {
        0 => named.join(", "),
        more => format!("{} and {more} more", named.join(", ")),
    }
}

fn or<'t>(text: &'t str, other: &'t str) -> &'t str {
    if text.is_empty() { other } else { text }
}

/// The first objects of a reason, and the number of further ones.
fn related(reason: &Reason) -> String {
    some(&reason.related, usize::try_from(reason.related_count).unwrap_or(usize::MAX))
}

/// A verdict as one word.
pub(super) fn verdict_word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Unspecified => "-",
        Verdict::Kept => "kept",
        Verdict::Unowned => "unowned",
        Verdict::Collectable => "queued",
        Verdict::Undecided => "undecided",
        Verdict::Held => "held",
        Verdict::InProgress => "deleting",
        Verdict::Blocked => "blocked",
        Verdict::Parked => "refused",
        Verdict::Gone => "gone",
    }
}
