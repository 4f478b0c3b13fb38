//! `gates`: gates with their policy, and what waits for it.

use super::{known, name, reason, store};
use crate::kubectl::columns::{Cell, columns};
use crate::kubectl::document::{Document, Kind, Schema};
use crate::kubectl::ending::{Answered, Ending, Problem};
use crate::kubectl::flags::{Asking, Format, Gates};
use crate::kubectl::service::{Need, Service};
use crate::kubectl::session::Session;
use engine::guard::GuardKind;
use proto::admin::v1beta1::Guard;
use proto::admin::v1beta1::guard::Kind as Of;
use runtime::visible::line;
use serde_json::Value;
use std::collections::BTreeMap;

const FORMATS: [Format; 5] = [Format::Table, Format::Wide, Format::Json, Format::Yaml, Format::Name];

pub(crate) async fn run(flags: Gates) -> Answered {
    let Gates { connection, output } = flags;
    let asking = Asking { namespace: None, all_namespaces: true, connection, output };
    let mut session = Session::open(asking, &FORMATS).await?;
    let mut service = Service::connect(&mut session, Need::Leader).await?;
    let mut gates = known(&mut service.admin).await?;
    gates.retain(|guard| guard.kind() == Of::Gate);
    // The graph service does not return the policy of a gate.
    let objects: BTreeMap<String, Value> = match store::list(&session, GuardKind::Gate).await {
        Ok(objects) => objects.into_iter().collect(),
        Err(problem) => {
            session.missed(format!("policies and bypasses are not known: {problem}"));
            BTreeMap::new()
        }
    };
    match session.format {
        Format::Json | Format::Yaml => session.print_document(document(&gates, &objects)?)?,
        Format::Name => {
            session.print(&gates.iter().map(|gate| format!("{}\n", line(&gate.name))).collect::<String>())?;
        }
        Format::Table | Format::Wide | Format::Tree | Format::Dot | Format::Mermaid | Format::Html | Format::Ndjson => {
            if gates.is_empty() {
                session.note("there are no gates");
            } else {
                session.print_table(&table(&gates, &objects, session.format == Format::Wide))?;
            }
            super::remarks(&gates).iter().for_each(|remark| session.note(remark));
        }
    }
    Ok(Ending::Fine)
}

/// The engine that is asked, and what follows if it does not answer: `webhook, Hold 300s then Deny`.
fn policy(spec: &Value) -> String {
    let engine = ["cel", "webhook", "stream"].into_iter().find(|engine| !spec[engine].is_null());
    let Some(engine) = engine else { return String::new() };
    let text = |field: &str| spec[field].as_str().unwrap_or("?").to_owned();
    let failure = match text("failurePolicy").as_str() {
        "Hold" => {
            let seconds = spec["maxHoldSeconds"].as_u64().map_or_else(|| "?".to_owned(), |most| most.to_string());
            format!("Hold {seconds}s then {}", text("afterMaxHold"))
        }
        other => other.to_owned(),
    };
    let is = |field: &str| spec[field].as_bool() == Some(true);
    let roots = if is("rootsOnly") { ", roots only" } else { "" };
    let observes = if is("observeOnly") { ", observes only" } else { "" };
    format!("{engine}, {failure}{roots}{observes}")
}

/// The bypass of a gate, until its end.
fn bypass(spec: &Value) -> String {
    let bypass = &spec["bypass"];
    let text = |field: &str| bypass[field].as_str().unwrap_or_default();
    match (text("untilTime"), text("reason"), text("by")) {
        ("", _, _) => String::new(),
        (until, why, "") => format!("until {until}: {why}"),
        (until, why, by) => format!("until {until}: {why} ({by})"),
    }
}

fn table(gates: &[Guard], objects: &BTreeMap<String, Value>, wide: bool) -> String {
    let cells = |gate: &Guard| {
        let spec = objects.get(name(gate)).map(|object| object["spec"].clone()).unwrap_or_default();
        let usage = gate.gate.clone().unwrap_or_default();
        let counts = [usage.in_flight, gate.held_items, usage.denied].map(|count| Cell::plain(count.to_string()));
        let mut cells = vec![Cell::bold(name(gate)), Cell::plain(gate.scope.as_str()), Cell::plain(policy(&spec))];
        cells.extend(counts);
        cells.push(Cell::plain(bypass(&spec)));
        if wide {
            let expires = gate.expire_time.as_ref().map(ToString::to_string).unwrap_or_default();
            cells.extend([super::state(gate).to_owned(), expires, reason(gate)].map(Cell::plain));
        }
        cells
    };
    let heads = ["NAME", "SCOPE", "POLICY", "IN FLIGHT", "HELD", "DENIED", "BYPASS", "STATE", "EXPIRES", "REASON"];
    let heads = if wide { &heads[..] } else { &heads[..7] };
    columns(heads, &gates.iter().map(cells).collect::<Vec<_>>())
}

/// The gates as the graph service knows them, each with the spec of its object.
fn document(gates: &[Guard], objects: &BTreeMap<String, Value>) -> Result<Document, Problem> {
    let schema = Schema::load()?;
    let mut items = Vec::new();
    for gate in gates {
        let mut item = schema.message("ownergraph.admin.v1beta1.Guard", gate)?;
        if let Some(object) = objects.get(name(gate)) {
            item["spec"] = object["spec"].clone();
        }
        items.push(item);
    }
    Ok(Document::list(Kind::GuardList, items.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::admin::v1beta1::GateUsage;
    use serde_json::json;

    fn gates() -> (Vec<Guard>, BTreeMap<String, Value>) {
        let gate = |name: &str, in_flight, denied| Guard {
            name: format!("gates/{name}"),
            kind: Of::Gate.into(),
            scope: "persistentvolumeclaims".to_owned(),
            reason: "ask first".to_owned(),
            effective: true,
            held_items: 4,
            gate: Some(GateUsage { in_flight, denied, bypass: None }),
            ..Guard::default()
        };
        let opa = json!({
            "webhook": { "url": "https://opa" }, "failurePolicy": "Hold", "maxHoldSeconds": 300, "afterMaxHold": "Deny",
            "rootsOnly": true,
            "bypass": { "untilTime": "2026-01-01T13:00:00Z", "reason": "opa is down\u{1b}[2J", "by": "jane" },
        });
        let quiet = json!({ "cel": { "expression": "true" }, "failurePolicy": "Allow", "observeOnly": true });
        let objects = [("opa", opa), ("quiet", quiet)];
        let objects = objects.map(|(name, spec)| (name.to_owned(), json!({ "spec": spec })));
        (vec![gate("opa", 2, 1), gate("quiet", 0, 0), gate("unread", 0, 0)], objects.into_iter().collect())
    }

    #[test]
    fn gates_stand_in_columns_with_policy_and_bypass() {
        let (gates, objects) = gates();
        let text = [false, true].map(|wide| anstream::adapter::strip_str(&table(&gates, &objects, wide)).to_string());
        insta::assert_snapshot!(text.join("\n"));
    }

    #[test]
    fn the_document_of_a_gate_has_its_spec() {
        let (gates, objects) = gates();
        let told = document(&gates, &objects).unwrap().with_incomplete(&[]);
        assert_eq!(told["items"][0]["spec"]["failurePolicy"], "Hold");
        assert_eq!((&told["items"][0]["gate"]["inFlight"], &told["items"][2]["spec"]), (&json!("2"), &Value::Null));
    }
}
