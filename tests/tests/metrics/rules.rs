//! The files of alerts, runbooks and dashboards.

use super::at;
use anyhow::{Context, ensure};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use tests::prometheus;

const RULES: &str = "deploy/alerts/ownergraph.yaml";
const CASES: &str = "tests/alerts.yaml";

/// Returns each alert with its rule.
pub(crate) fn alerts() -> anyhow::Result<BTreeMap<String, Value>> {
    let file: Value = serde_saphyr::from_str(&fs::read_to_string(at(RULES))?)?;
    let groups = file["groups"].as_array().context("groups")?;
    let rules = groups.iter().flat_map(|group| group["rules"].as_array().into_iter().flatten());
    let named = |rule: &Value| Some((rule["alert"].as_str()?.to_owned(), rule.clone()));
    rules.map(|rule| named(rule).with_context(|| format!("{rule} is no alert"))).collect()
}

/// Returns each expression of a panel in a form that Prometheus can evaluate, with the panel's title.
pub(crate) fn panels() -> anyhow::Result<Vec<(String, String)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(at("deploy/dashboards"))? {
        let dashboard: Value = serde_json::from_str(&fs::read_to_string(entry?.path())?)?;
        let panels = dashboard["panels"].as_array().context("panels")?;
        let ids: BTreeSet<i64> = panels.iter().filter_map(|panel| panel["id"].as_i64()).collect();
        ensure!(ids.len() == panels.len(), "panels have a number each");
        for panel in panels {
            let title = panel["title"].as_str().context("a panel without a title")?;
            for target in panel["targets"].as_array().into_iter().flatten() {
                let expression = target["expr"].as_str().with_context(|| format!("{title}: no expression"))?;
                found.push((
                    title.to_owned(),
                    expression.replace("$__rate_interval", "1m").replace("$cluster", ".*").replace("$job", ".*"),
                ));
            }
        }
    }
    ensure!(found.len() > 20, "the dashboards were read");
    Ok(found)
}

#[test]
fn every_alert_has_its_runbook_and_every_runbook_its_alert() -> anyhow::Result<()> {
    let alerts = alerts()?;
    for (name, rule) in &alerts {
        let path = format!("docs/runbooks/{name}.md");
        ensure!(rule["annotations"]["runbook_url"] == path.as_str(), "{name} leads to {path}");
        ensure!(rule["annotations"]["summary"].is_string(), "{name} has a summary");
        let severity = rule["labels"]["severity"].as_str().unwrap_or_default();
        ensure!(["critical", "warning"].contains(&severity), "{name} has severity {severity:?}");
        let page = fs::read_to_string(at(&path)).with_context(|| path.clone())?;
        ensure!(page.starts_with(&format!("# {name}\n")), "{path} begins with its name");
        let opening = page.split("\n\n").nth(1).unwrap_or_default().replace('\n', " ");
        ensure!(
            rule["annotations"]["description"] == opening.trim(),
            "the description of {name} is the opening of {path}"
        );
        for part in ["\n## Meanwhile\n", "\n## Look\n", "\n## Do\n"] {
            ensure!(page.contains(part), "{path} lacks {part:?}");
        }
    }
    let pages: BTreeSet<String> = fs::read_dir(at("docs/runbooks"))?
        .map(|entry| Ok(entry?.file_name().to_string_lossy().trim_end_matches(".md").to_owned()))
        .collect::<anyhow::Result<_>>()?;
    ensure!(pages == alerts.into_keys().collect(), "{pages:?}");
    Ok(())
}

#[test]
fn each_panel_is_of_the_chosen_cluster_and_job() -> anyhow::Result<()> {
    let dashboard: Value = serde_json::from_str(&fs::read_to_string(at("deploy/dashboards/ownergraph.json"))?)?;
    let targets = dashboard["panels"].as_array().into_iter().flatten().filter_map(|panel| panel["targets"].as_array());
    for expression in targets.flatten().filter_map(|target| target["expr"].as_str()) {
        let metrics = expression.matches("ownergraph_").count() + expression.matches("process_").count();
        let chosen = expression.matches("{cluster=~\"$cluster\", job=~\"$job\"").count();
        ensure!(metrics == chosen, "{expression}");
    }
    Ok(())
}

#[test]
fn prometheus_reads_every_rule_and_every_expression() -> anyhow::Result<()> {
    let Some(tools) = prometheus::require() else { return Ok(()) };
    tools.promtool(&["check", "rules", at(RULES).to_str().context("the path")?], "")?;
    let record = |(at, (_, expression)): (usize, (String, String))| json!({ "record": format!("panel:{at}"), "expr": expression });
    let rules: Vec<Value> = panels()?.into_iter().enumerate().map(record).collect();
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("panels.yaml");
    fs::write(&path, json!({ "groups": [{ "name": "panels", "rules": rules }] }).to_string())?;
    tools.promtool(&["check", "rules", path.to_str().context("the path")?], "")
}

#[test]
fn every_alert_fires_when_it_should_and_only_then() -> anyhow::Result<()> {
    let Some(tools) = prometheus::require() else { return Ok(()) };
    let cases: Value = serde_saphyr::from_str(&fs::read_to_string(at(CASES))?)?;
    let mut shown: BTreeSet<(String, bool)> = BTreeSet::new();
    for case in cases["tests"].as_array().context("tests")? {
        for test in case["promql_expr_test"].as_array().into_iter().flatten() {
            let expression = test["expr"].as_str().unwrap_or_default();
            let name = expression.split("alertname=\"").nth(1).and_then(|rest| rest.split('"').next());
            let fires = test["exp_samples"].as_array().is_some_and(|samples| !samples.is_empty());
            shown.insert((name.context("a case of an alert")?.to_owned(), fires));
        }
    }
    for name in alerts()?.into_keys() {
        for fires in [true, false] {
            ensure!(shown.contains(&(name.clone(), fires)), "no case in {CASES} shows {name} firing: {fires}");
        }
    }
    tools.promtool(&["test", "rules", at(CASES).to_str().context("the path")?], "")
}
