//! `plan delete`: what a deletion would do.

use super::document::{Document, Kind, Schema};
use super::ending::{Answered, Ending, Problem};
use super::flags::{Cascade, Format, PlanDelete};
use super::guards::{Waiting, approve_command, release_command};
use super::naming::{Found, Named, lines_by_type, listing, shown};
use super::service::{Need, Service};
use super::session::Session;
use super::{targets, why};
use crate::counted::{are, counted};
use crate::name::command;
use anstyle::AnsiColor;
use proto::graph::v1beta1::preview_deletion_response::{Effect, Entry, Guard, GuardEffect};
use proto::graph::v1beta1::{PreviewDeletionRequest, PreviewDeletionResponse, Reason};
use proto::r#type::v1beta1::consistency::Requirement;
use proto::r#type::v1beta1::{Consistency, PropagationPolicy};
use runtime::visible::line;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

#[cfg(test)]
mod tests;

const FORMATS: [Format; 4] = [Format::Table, Format::Json, Format::Yaml, Format::Name];
/// Maximum wait for a graph that is as fresh as the API server.
const FRESH_WITHIN: Duration = Duration::from_secs(10);
/// Maximum number of lines for one effect. JSON has all.
const LINES_MAX: usize = 20;

pub(super) async fn run(flags: PlanDelete) -> Answered {
    let mut session = Session::open(flags.asking, &FORMATS).await?;
    let named = targets::resolve(&mut session, &flags.targets).await?;
    if named.is_empty() {
        session.note(&format!("no object matches {}", session.where_searched()));
        return Ok(Ending::Fine);
    }
    present(&named)?;
    let mut service = Service::connect(&mut session, Need::Verdict).await?;
    let plan = ask(&mut service, &named, flags.targets.cascade).await?;
    if session.is_file() {
        session.missed("a snapshot has no holds and pauses, and no later changes".to_owned());
    }
    let doubts = doubts(&plan);
    for doubt in &doubts {
        session.missed(doubt.clone());
    }
    let releases = releases(&plan, &service.waiting_for(held_by(&plan)).await);
    match session.format {
        Format::Json | Format::Yaml => {
            let fields = Schema::load()?.value("PreviewDeletionResponse", &plan)?;
            session.print_document(Document::new(Kind::DeletionPlan).with_fields(fields))?;
        }
        Format::Name => {
            let going = plan.entries.iter().filter(|entry| entry.effect() == Effect::Delete);
            session.print(&lines_by_type(going.map(|entry| entry.r#ref.as_ref())))?;
        }
        Format::Table | Format::Wide | Format::Tree | Format::Dot | Format::Mermaid | Format::Html | Format::Ndjson => {
            let objects = format!("{}{}", flags.targets.words(&named), flags.targets.place(&session, &named));
            let (cascade, digest) = (flags.targets.cascade.as_str(), line(&plan.digest));
            let run = format!("run    {} delete {objects} --cascade={cascade} --confirm={digest}\n", command());
            // A snapshot can only be read, and `delete` refuses a plan in doubt.
            let run = if session.is_file() || !doubts.is_empty() { String::new() } else { run };
            let first: String = releases.iter().map(|command| format!("first  {}\n", line(command))).collect();
            let plan = format!("{}{first}{run}{}", text(&plan, &named, flags.targets.cascade), approvals(&plan));
            session.print(&plan)?;
        }
    }
    let certain = doubts.is_empty() && !session.is_incomplete();
    Ok(if certain { Ending::Fine } else { Ending::Refused })
}

/// Every target must exist and be readable, because the plan identifies it by uid.
pub(super) fn present(named: &[Named]) -> Result<(), Problem> {
    for object in named {
        let what = shown(&object.reference());
        match &object.found {
            Found::There { .. } => {}
            Found::Absent => return Err(Problem::sentence(format!("{what} does not exist"))),
            Found::Unreadable(why) => return Err(Problem::sentence(format!("{what} cannot be read: {why}"))),
        }
    }
    Ok(())
}

pub(super) async fn ask(
    service: &mut Service,
    named: &[Named],
    cascade: Cascade,
) -> Result<PreviewDeletionResponse, Problem> {
    let policy = match cascade {
        Cascade::Background => PropagationPolicy::Background,
        Cascade::Foreground => PropagationPolicy::Foreground,
        Cascade::Orphan => PropagationPolicy::Orphan,
    };
    let targets = named.iter().map(Named::reference).collect();
    // The plan requires the latest state, so that it includes recent writes.
    let latest = Some(Requirement::Latest(true));
    let consistency = Consistency { requirement: latest, max_wait: prost_types::Duration::try_from(FRESH_WITHIN).ok() };
    let request = PreviewDeletionRequest {
        targets,
        propagation_policy: policy.into(),
        consistency: Some(consistency),
        ..Default::default()
    };
    service.preview(request).await
}

/// Why the plan is not certain, or would not be carried out completely.
pub(super) fn doubts(plan: &PreviewDeletionResponse) -> Vec<String> {
    let mut doubts = Vec::new();
    let unsynced = plan.meta.as_ref().map(|meta| meta.unsynced.as_slice()).unwrap_or_default();
    let mut unseen = unsynced.to_vec();
    unseen.extend(plan.undecided_by.iter().filter(|of| !unsynced.contains(of)).cloned());
    if !unseen.is_empty() {
        doubts.push(format!("the plan may lack objects: these collections are incomplete: {}", listing(&unseen)));
    }
    if !plan.missing_uids.is_empty() {
        doubts.push(format!("the graph does not contain {} of the targets yet", plan.missing_uids.len()));
    }
    if plan.redacted_count > 0 {
        doubts.push(format!("{} affected that you may not see", are(plan.redacted_count, "more object")));
    }
    let count = |effect: Effect| plan.entries.iter().filter(|entry| entry.effect() == effect).count();
    let (unknown, held) = (count(Effect::Unknown), count(Effect::Held));
    if unknown > 0 {
        doubts.push(format!("the effect on {} is unknown", counted(unknown, "object")));
    }
    if held > 0 {
        doubts.push(format!("{} held", are(held, "object")));
    }
    doubts
}

/// The reasons that hold objects of the plan.
pub(super) fn held_by(plan: &PreviewDeletionResponse) -> impl Iterator<Item = &Reason> {
    plan.entries.iter().filter(|entry| entry.effect() == Effect::Held).flat_map(|entry| &entry.reasons)
}

/// The commands that release the held objects of a plan. `waiting` has the cascades that wait.
pub(super) fn releases(plan: &PreviewDeletionResponse, waiting: &[Waiting]) -> Vec<String> {
    let held = plan.entries.iter().filter(|entry| entry.effect() == Effect::Held);
    let of = |entry: &Entry| {
        let object = entry.r#ref.clone().unwrap_or_default();
        entry.reasons.iter().filter_map(|reason| release_command(reason, &object, waiting)).collect::<Vec<_>>()
    };
    held.flat_map(of).collect::<BTreeSet<_>>().into_iter().take(LINES_MAX).collect()
}

pub(super) fn text(plan: &PreviewDeletionResponse, named: &[Named], cascade: Cascade) -> String {
    let targets: Vec<String> = named.iter().map(|object| shown(&object.reference())).collect();
    let mut text = format!("PLAN  delete {} ({})\n", targets.join(", "), cascade.as_str());
    let effects = [
        (Effect::Delete, "delete", AnsiColor::Red),
        (Effect::Orphaned, "orphan", AnsiColor::Green),
        (Effect::ReferenceRemoved, "keep", AnsiColor::Green),
        (Effect::Waits, "waits", AnsiColor::Yellow),
        (Effect::Held, "held", AnsiColor::Yellow),
        (Effect::Unknown, "unknown", AnsiColor::Yellow),
    ];
    for (effect, word, colour) in effects {
        let entries: Vec<&Entry> = plan.entries.iter().filter(|entry| entry.effect() == effect).collect();
        if entries.is_empty() {
            continue;
        }
        let count = entries.len();
        let style = colour.on_default();
        let first = format!("  {style}{word:<8}{style:#}{count:>4}");
        if effect == Effect::Delete {
            text.push_str(&format!("{first}  {}\n", kinds(&entries)));
            continue;
        }
        for (at, entry) in entries.iter().take(LINES_MAX).enumerate() {
            let object = shown(&entry.r#ref.clone().unwrap_or_default());
            let reasons: Vec<String> = entry.reasons.iter().map(why::reason_words).collect();
            text.push_str(if at == 0 { &first } else { "              " });
            text.push_str(line(&format!("  {object}  {}", reasons.join("; "))).trim_end());
            text.push('\n');
        }
        if count > LINES_MAX {
            text.push_str(&format!("{}  and {} more; -o json has all\n", " ".repeat(14), count - LINES_MAX));
        }
    }
    text.push_str(&guards(plan));
    text.push_str(&format!("digest {}\n", line(&plan.digest)));
    text
}

/// The guards that may keep the collector from a part of the plan, one a line.
fn guards(plan: &PreviewDeletionResponse) -> String {
    let width = plan.guards.iter().map(|guard| line(&guard.guard).len()).max().unwrap_or_default();
    let told = |guard: &Guard| {
        let objects = counted(guard.count, "object");
        let does = match guard.effect() {
            GuardEffect::Held => format!("holds {objects}"),
            GuardEffect::AwaitsApproval => {
                let least = if guard.more { "more than " } else { "" };
                format!("holds {least}{objects} until a person approves the cascade")
            }
            GuardEffect::Asked => format!("is asked about {objects}, and its answer is not known"),
            GuardEffect::OverBudget => {
                format!("has no room now for {objects} of {} in its scope", guard.in_scope_count)
            }
            GuardEffect::Unspecified => format!("concerns {objects}"),
        };
        let until = guard.until.as_ref().map_or_else(String::new, |until| format!(", until {until}"));
        format!("  {:<width$}  {does}{until}: {}\n", line(&guard.guard), line(&guard.reason))
    };
    let mut text: String = plan.guards.iter().map(told).collect();
    if plan.omitted_guards > 0 {
        text.push_str(&format!("  and {}\n", counted(plan.omitted_guards, "more guard")));
    }
    if text.is_empty() { text } else { format!("guards\n{text}") }
}

/// The commands that approve the cascades of a plan. They work when the targets are deleted and the cascades wait.
pub(super) fn approvals(plan: &PreviewDeletionResponse) -> String {
    let mut commands = Vec::new();
    for guard in plan.guards.iter().filter(|guard| guard.effect() == GuardEffect::AwaitsApproval) {
        if let Some(root) = guard.root.clone().filter(|_| !guard.cascade_digest.is_empty()) {
            let command = approve_command(&root, &guard.cascade_digest);
            if !commands.contains(&command) {
                commands.push(command);
            }
        }
    }
    commands.iter().map(|command| format!("then   {}\n", line(command))).collect()
}

/// The kinds with their numbers, the most numerous first: `Pod 6, Secret 4`.
fn kinds(entries: &[&Entry]) -> String {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for entry in entries {
        *counts.entry(entry.r#ref.clone().unwrap_or_default().kind).or_default() += 1;
    }
    let mut counts: Vec<(String, usize)> = counts.into_iter().collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    counts.iter().map(|(kind, count)| format!("{} {count}", line(kind))).collect::<Vec<_>>().join(", ")
}
