//! `protect` and `budget`: create guards.

use super::scope::Scope;
use super::store;
use crate::kubectl::document::{Document, Kind};
use crate::kubectl::ending::{Answered, Ending, Problem};
use crate::kubectl::flags::{Asking, Budget, Connection, Format, Limit, Output, Preset, Protect, ScopeFlags};
use crate::kubectl::session::Session;
use crate::name::{command, kubectl};
use engine::guard::{GuardId, GuardKind};
use proto::convert::LIFETIME_MAX;
use runtime::visible::line;
use serde_json::{Value, json};
use std::time::Duration;
use uuid::Uuid;

#[cfg(test)]
mod tests;

const FORMATS: [Format; 4] = [Format::Table, Format::Json, Format::Yaml, Format::Name];

pub(crate) async fn protect(flags: Protect) -> Answered {
    let Protect { name, preset, reason, lifetime, scope, connection, output } = flags;
    if scope.is_empty() && preset.is_empty() {
        return Err(Problem::sentence(format!(
            "a protection without conditions holds every deletion of the collector: give -k, -n, --name, -l, --namespace-selector, --owner or --preset; to hold everything for a time, run {} pause --all --for 1h --reason TEXT",
            command()
        )));
    }
    let lifetime = seconds("--for", lifetime, Duration::MAX)?;
    let mut session = open(connection, output).await?;
    let resolved = scope.resolve(&mut session).await?;
    let name = name.unwrap_or_else(|| format!("protection-{}", &Uuid::new_v4().simple().to_string()[..8]));
    let spec = protection(&reason, lifetime, scope.targets(&resolved)?, &preset);
    let words = if preset.is_empty() { scope.words(&resolved) } else { marked(&preset) };
    create(&session, GuardKind::Protection, &name, &spec, &words).await
}

pub(crate) async fn budget(flags: Budget) -> Answered {
    let (window, lifetime) = (seconds("--per", Some(flags.per), LIFETIME_MAX)?, flags.lifetime);
    let lifetime = seconds("--for", lifetime, Duration::MAX)?;
    let mut session = open(flags.connection, flags.output).await?;
    let scope: &ScopeFlags = &flags.scope;
    let resolved: Scope = scope.resolve(&mut session).await?;
    let mut spec = spec(&flags.reason, lifetime, scope.targets(&resolved)?);
    let limit = match flags.max {
        Limit::Objects(count) => ("maxObjects", count),
        Limit::Percent(share) => ("maxPercent", share),
    };
    spec[limit.0] = json!(limit.1);
    spec["windowSeconds"] = json!(window);
    spec["onExceeded"] = json!(flags.on_exceeded);
    create(&session, GuardKind::Budget, &flags.name, &spec, &scope.words(&resolved)).await
}

/// A session that writes to the API server.
pub(super) async fn open(connection: Connection, output: Output) -> Result<Session, Problem> {
    let asking = Asking { namespace: None, all_namespaces: false, connection, output };
    let session = Session::open(asking, &FORMATS).await?;
    if session.is_file() {
        return Err(Problem::sentence("--from-file only reads; this command writes to the API server"));
    }
    Ok(session)
}

/// Whole seconds. The resources have no shorter times.
fn seconds(flag: &str, span: Option<Duration>, most: Duration) -> Result<Option<u64>, Problem> {
    match span {
        Some(span) if span.subsec_nanos() != 0 || span > most => {
            let most = if most == LIFETIME_MAX { " from 1s to 24h" } else { "" };
            Err(Problem::sentence(format!("{flag} must be a whole number of seconds{most}, not {span:?}")))
        }
        span => Ok(span.map(|span| span.as_secs())),
    }
}

/// The fields that all guards have.
fn spec(reason: &str, lifetime: Option<u64>, targets: Vec<Value>) -> Value {
    let mut spec = json!({ "reason": reason });
    if let Some(lifetime) = lifetime {
        spec["lifetimeSeconds"] = json!(lifetime);
    }
    if !targets.is_empty() {
        spec["scope"] = json!({ "targets": targets });
    }
    spec
}

fn protection(reason: &str, lifetime: Option<u64>, targets: Vec<Value>, presets: &[Preset]) -> Value {
    let mut spec = spec(reason, lifetime, targets);
    let mut tools: Vec<&str> = Vec::new();
    for tool in presets.iter().copied().map(tool) {
        if !tools.contains(&tool) {
            tools.push(tool);
        }
    }
    if !tools.is_empty() {
        spec["presets"] = json!(tools);
    }
    spec
}

fn tool(preset: Preset) -> &'static str {
    match preset {
        Preset::Helm => "Helm",
        Preset::ArgoCD => "ArgoCD",
        Preset::OpenKruise => "OpenKruise",
        Preset::Karmada => "Karmada",
        Preset::Gardener => "Gardener",
        Preset::Crossplane => "Crossplane",
    }
}

fn marked(presets: &[Preset]) -> String {
    format!("objects with the marks of {}", presets.iter().copied().map(tool).collect::<Vec<_>>().join(", "))
}

async fn create(session: &Session, kind: GuardKind, name: &str, spec: &Value, scope: &str) -> Answered {
    let object = json!({
        "apiVersion": store::API_VERSION, "kind": kind.as_kind(), "metadata": { "name": name }, "spec": spec,
    });
    let created = store::create(session, kind, &object, "").await?;
    let id = GuardId { kind, name: name.into() };
    match session.format {
        Format::Json | Format::Yaml => {
            let document = if kind == GuardKind::Budget { Kind::Budget } else { Kind::Protection };
            session.print_document(Document::new(document).with_fields(created))?;
        }
        Format::Name => session.print(&format!("{}/{}\n", kind.plural(), line(name)))?,
        Format::Table | Format::Wide | Format::Tree | Format::Dot | Format::Mermaid | Format::Html | Format::Ndjson => {
            session.print(&text(&id, spec, scope))?;
        }
    }
    Ok(Ending::Fine)
}

fn text(id: &GuardId, spec: &Value, scope: &str) -> String {
    let ends = match spec["lifetimeSeconds"].as_u64() {
        Some(seconds) => format!("in {}", crate::kubectl::columns::span(i64::try_from(seconds).unwrap_or(i64::MAX))),
        None => "never".to_owned(),
    };
    let reason = spec["reason"].as_str().unwrap_or_default();
    let release = format!("{} release {id}", command());
    let mut rows = vec![("scope", scope), ("reason", reason), ("ends", &ends), ("release", &release)];
    // The release of a budget begins a new window, and the budget stays.
    let delete = format!("{} delete {}.{}/{}", kubectl(), id.kind.plural(), store::GROUP, id.name);
    if id.kind == GuardKind::Budget {
        rows.push(("delete", &delete));
    }
    let lines = rows.iter().map(|(head, words)| format!("  {head:<9}{}\n", line(words)));
    format!("{} created\n{}", line(&id.to_string()), lines.collect::<String>())
}
