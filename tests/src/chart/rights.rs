//! The rights in rendered roles, roles without a single right, and the table of rights.

use super::root;
use anyhow::{Context, ensure};
use engine::object::in_group;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt;
use std::fs;

/// One verb on one resource, in the form in which a rule grants it to a service account.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Right {
    pub account: String,
    pub verb: String,
    pub resource: String,
    pub group: String,
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Right { account, verb, resource, group } = self;
        write!(f, "{account}: {verb} {}", in_group(resource, group))
    }
}

fn texts(value: &Value) -> Vec<String> {
    let items = value.as_array().map(Vec::as_slice).unwrap_or_default();
    items.iter().filter_map(|item| item.as_str().map(str::to_owned)).collect()
}

fn is_role(object: &Value) -> bool {
    ["Role", "ClusterRole"].iter().any(|kind| object["kind"] == *kind)
}

fn account(object: &Value) -> Option<&str> {
    let component = object["metadata"]["labels"]["app.kubernetes.io/component"].as_str()?;
    ["graph-service", "executor-service"].into_iter().find(|name| *name == component)
}

/// Returns every right of both services in the rendered chart.
pub fn rights(objects: &[Value]) -> anyhow::Result<Vec<Right>> {
    let mut found = Vec::new();
    for role in objects.iter().filter(|object| is_role(object)) {
        let Some(account) = account(role) else { continue };
        for rule in role["rules"].as_array().context("a role without rules")? {
            ensure!(rule.get("nonResourceURLs").is_none(), "a right on a path has no row here: {rule}");
            for group in texts(&rule["apiGroups"]) {
                for resource in texts(&rule["resources"]) {
                    for verb in texts(&rule["verbs"]) {
                        let (group, resource) = (group.clone(), resource.clone());
                        found.push(Right { account: account.to_owned(), verb, resource, group });
                    }
                }
            }
        }
    }
    let known = found.len();
    found.sort();
    found.dedup();
    ensure!(
        found.len() == known,
        "a right is given twice, so taking one of the two away would change nothing: {found:?}"
    );
    Ok(found)
}

/// Returns every right of the rules, one per line: the account, the right, the place, and the names to which the right
/// is limited.
pub fn spelt_out(account: &str, place: &str, rules: &Value) -> Vec<String> {
    let mut lines = Vec::new();
    for rule in rules.as_array().map(Vec::as_slice).unwrap_or_default() {
        let names = texts(&rule["resourceNames"]);
        for group in texts(&rule["apiGroups"]) {
            for resource in texts(&rule["resources"]) {
                for verb in texts(&rule["verbs"]) {
                    let (account, group, resource) = (account.to_owned(), group.clone(), resource.clone());
                    let right = Right { account, verb, resource, group };
                    lines.push(format!("{right} in {place}, names {names:?}"));
                }
            }
        }
    }
    lines
}

/// Returns the roles and bindings of one service under other names, for another account and another Lease, without one
/// right.
pub fn reduced(objects: &[Value], of: &str, suffix: &str, without: Option<&Right>) -> Vec<Value> {
    let renamed = |name: &Value| json!(format!("{}-{suffix}", name.as_str().unwrap_or_default()));
    let ours = objects.iter().filter(|object| account(object) == Some(of));
    let mut made = Vec::new();
    for object in ours {
        let mut object = object.clone();
        if is_role(&object) {
            object["rules"] = rules(&object["rules"], suffix, without);
        } else if object["kind"].as_str().is_some_and(|kind| kind.ends_with("Binding")) {
            object["roleRef"]["name"] = renamed(&object["roleRef"]["name"]);
            object["subjects"][0]["name"] = renamed(&object["subjects"][0]["name"]);
        } else if object["kind"] != "ServiceAccount" {
            continue;
        }
        object["metadata"]["name"] = renamed(&object["metadata"]["name"]);
        made.push(object);
    }
    made
}

fn rules(rules: &Value, lease: &str, without: Option<&Right>) -> Value {
    let mut left = Vec::new();
    for rule in rules.as_array().map(Vec::as_slice).unwrap_or_default() {
        for verb in texts(&rule["verbs"]) {
            for resource in texts(&rule["resources"]) {
                for group in texts(&rule["apiGroups"]) {
                    let taken =
                        |right: &Right| right.verb == verb && right.resource == resource && right.group == group;
                    if without.is_some_and(taken) {
                        continue;
                    }
                    let mut one = json!({ "apiGroups": [group], "resources": [resource], "verbs": [verb] });
                    if rule.get("resourceNames").is_some() {
                        let names = if resource == "leases" { json!([lease]) } else { rule["resourceNames"].clone() };
                        one["resourceNames"] = names;
                    }
                    left.push(one);
                }
            }
        }
    }
    json!(left)
}

/// The chart's own list of rights, with their reasons.
#[derive(Debug, Deserialize)]
pub struct Table {
    pub roles: Vec<Role>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Role {
    pub account: String,
    pub scope: String,
    pub name: String,
    #[serde(default)]
    pub when: Option<String>,
    pub rules: Vec<Rule>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Rule {
    pub api_groups: Vec<String>,
    pub resources: Vec<String>,
    #[serde(default)]
    pub resource_names: Vec<String>,
    pub verbs: Vec<String>,
    #[serde(default)]
    pub when: Option<String>,
    pub why: String,
    pub without: String,
}

/// Reads the list from the chart.
pub fn table() -> anyhow::Result<Table> {
    let text = fs::read_to_string(root().join("deploy/chart/files/rbac.yaml"))?;
    serde_saphyr::from_str(&text).context("deploy/chart/files/rbac.yaml")
}

impl Table {
    /// Returns the list as a page of the documentation.
    pub fn page(&self) -> anyhow::Result<String> {
        let mut page = INTRODUCTION.to_owned();
        let mut by_account: BTreeMap<&str, Vec<(&Role, &Rule)>> = BTreeMap::new();
        for role in &self.roles {
            by_account.entry(&role.account).or_default().extend(role.rules.iter().map(|rule| (role, rule)));
        }
        // The graph service is first, as on every other page. Those that only read are last.
        for (account, rules) in by_account.iter().rev() {
            page.push_str(&format!(
                "\n## {account}\n\n| Verb | What | Why | Where it is missing |\n|---|---|---|---|\n"
            ));
            for (role, rule) in rules {
                let what = rule.what(role)?;
                let verbs = rule.verbs.join(", ");
                page.push_str(&format!("| {verbs} | {what} | {} | {} |\n", rule.why.trim(), rule.without.trim()));
            }
        }
        Ok(page)
    }
}

const INTRODUCTION: &str = "# Rights

<!-- Generated from deploy/chart/files/rbac.yaml by `BLESS=1 cargo test -p tests --test together chart::the_table`. -->

The rights that the chart grants to both services, to callers (every authenticated user) and to the pods of `audit` at
the API server, the reason for each, and the symptom if one is missing. A test removes each right of a service and
checks that a log line or an answer names it. The graph service reads everything, because any object can be an owner or
a dependent. Its answers to a caller are limited by the caller's own rights.
";

impl Rule {
    fn what(&self, role: &Role) -> anyhow::Result<String> {
        let everything = self.resources == ["*"] && self.api_groups == ["*"];
        let group = self.api_groups.first().context("a rule without a group")?;
        let mut what = match everything {
            true => "everything".to_owned(),
            false => {
                self.resources.iter().map(|name| format!("`{}`", in_group(name, group))).collect::<Vec<_>>().join(", ")
            }
        };
        if !self.resource_names.is_empty() {
            what.push_str(if role.scope == "election" { " of the election's name" } else { " `ownergraph`" });
        }
        match role.scope.as_str() {
            "cluster" => {}
            "election" => what.push_str(", in the Lease's namespace"),
            "public" => what.push_str(", in `kube-public`"),
            "release" => what.push_str(", in the namespace of the release"),
            other => anyhow::bail!("a scope that the page does not know: {other}"),
        }
        for when in role.when.iter().chain(&self.when) {
            what.push_str(match when.as_str() {
                "enforce" => "; not in mode `observe`",
                "tls" => "; not without TLS",
                "publish" => "; not without `access.publish`",
                "audit" => "; only with `audit.enabled` or `audit.sink.url`",
                "portForward" => "; not without `access.portForward`",
                other => anyhow::bail!("a condition that the page does not know: {other}"),
            });
        }
        Ok(what)
    }
}
