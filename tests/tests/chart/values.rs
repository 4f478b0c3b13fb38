//! The page of the chart's values. It is made from the comments of values.yaml.

use crate::same;
use anyhow::{Context, ensure};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use tests::chart::root;

const HEAD: &str = "# The Ownergraph chart\n\n\
<!-- Generated from values.yaml by `BLESS=1 cargo test -p tests --test together chart::values`. -->\n\n\
[Installation](../../docs/install.md) describes how to install it. `values.schema.json` checks every value. `ci` has sets of values that the tests \
render and give to an API server.\n\n\
| Value | Default | Meaning |\n|---|---|---|\n";

/// A value of the chart.
struct Row {
    path: String,
    /// `None` for a map with values in it.
    default: Option<String>,
    comment: String,
}

/// Returns the values in their order. A map in block style contains values. A map in flow style is a value itself.
fn rows(yaml: &str) -> Vec<Row> {
    let (mut rows, mut comment, mut above) = (Vec::new(), Vec::new(), Vec::<(usize, String)>::new());
    for line in yaml.lines() {
        let text = line.trim_start();
        let depth = line.len() - text.len();
        if let Some(said) = text.strip_prefix('#') {
            comment.push(said.trim().to_owned());
        } else if let Some((key, value)) = text.split_once(':') {
            above.retain(|(of, _)| *of < depth);
            above.push((depth, key.to_owned()));
            let path = above.iter().map(|(_, key)| key.as_str()).collect::<Vec<_>>().join(".");
            let default = Some(value.trim().to_owned()).filter(|value| !value.is_empty());
            rows.push(Row { path, default, comment: std::mem::take(&mut comment).join(" ") });
        } else {
            comment.clear();
        }
    }
    rows
}

#[test]
fn the_readme_has_the_values_and_each_is_explained_and_checked() -> anyhow::Result<()> {
    let read = |file: &str| fs::read_to_string(root().join("deploy/chart").join(file)).context(file.to_owned());
    let rows = rows(&read("values.yaml")?);
    ensure!(rows.len() > 80, "the values were read");
    let schema: Value = serde_json::from_str(&read("values.schema.json")?)?;
    let said: BTreeMap<&str, &str> = rows.iter().map(|row| (row.path.as_str(), row.comment.as_str())).collect();
    let mut page = HEAD.to_owned();
    for Row { path, default, comment } in &rows {
        // The page explains a value of both services once. The comment of a map may explain its values.
        let twin = path.replacen("executorService", "graphService", 1);
        let of = |path: &str| said.get(path).copied().unwrap_or_default();
        let own = if comment.is_empty() { of(&twin) } else { comment };
        let map_is = |path: &str| path.match_indices('.').any(|(end, _)| !of(&path[..end]).is_empty());
        let is_explained = !own.is_empty() || map_is(path) || map_is(&twin);
        ensure!(is_explained || default.is_none(), "{path} has no comment");
        let mut known = &schema;
        for key in path.split('.') {
            if known["properties"].is_null() {
                break;
            }
            known = &known["properties"][key];
            ensure!(!known.is_null(), "{path}: the schema has no {key}");
        }
        if own.is_empty() && default.is_none() {
            continue;
        }
        let default = default.as_ref().map(|default| format!("`{default}`")).unwrap_or_default();
        page.push_str(&format!("| `{path}` | {default} | {} |\n", own.replace('|', "\\|")));
    }
    same("deploy/chart/README.md", &page)
}
