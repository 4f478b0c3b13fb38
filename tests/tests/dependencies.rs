//! Licences, bans and sources of everything in the lock file, held against `deny.toml`, the one list of them. Advisories need a database from
//! the network: `cargo deny check advisories` asks that.

use anyhow::{Context, ensure};
use serde_json::Value;
use spdx::{Expression, ParseMode};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use toml_edit::{DocumentMut, Item};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate is below the root")
}

fn policy() -> anyhow::Result<DocumentMut> {
    let text = std::fs::read_to_string(root().join("deny.toml"))?;
    text.parse().context("reading deny.toml")
}

/// The texts of a list, or one field of the tables of a list.
fn texts(list: &Item, field: Option<&str>) -> Vec<String> {
    let entries = list.as_array().into_iter().flatten();
    let text = |entry: &toml_edit::Value| match field {
        None => entry.as_str().map(str::to_owned),
        Some(field) => entry.as_inline_table()?.get(field)?.as_str().map(str::to_owned),
    };
    entries.filter_map(text).collect()
}

/// What is built, for the first target of the policy: name, version, licence, source.
fn packages(policy: &DocumentMut) -> anyhow::Result<Vec<[String; 4]>> {
    let target = texts(&policy["graph"]["targets"], None).into_iter().next().context("no target in deny.toml")?;
    let arguments = ["metadata", "--format-version=1", "--all-features", "--locked", "--filter-platform", &target];
    let output = Command::new(env!("CARGO")).args(arguments).current_dir(root()).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout)?;
    let nodes = metadata["resolve"]["nodes"].as_array().context("no dependencies in the metadata")?;
    let built: BTreeSet<&str> = nodes.iter().filter_map(|node| node["id"].as_str()).collect();
    let packages = metadata["packages"].as_array().context("no packages in the metadata")?;
    let text = |package: &Value, field: &str| package[field].as_str().unwrap_or_default().to_owned();
    let packages = packages.iter().filter(|package| package["id"].as_str().is_some_and(|id| built.contains(id)));
    Ok(packages.map(|package| ["name", "version", "license", "source"].map(|field| text(package, field))).collect())
}

fn allowed(expression: &str, names: &[String]) -> anyhow::Result<bool> {
    let expression = Expression::parse_mode(expression, ParseMode::LAX).map_err(|error| anyhow::anyhow!("{error}"))?;
    Ok(expression.evaluate(|licence| names.contains(&licence.to_string())))
}

#[test]
fn licences_are_among_those_that_may_be() -> anyhow::Result<()> {
    let policy = policy()?;
    let names = texts(&policy["licenses"]["allow"], None);
    let mut exceptions = BTreeMap::new();
    for entry in policy["licenses"]["exceptions"].as_array().into_iter().flatten() {
        let table = entry.as_inline_table().context("an exception is a table")?;
        let name = table["crate"].as_str().unwrap_or_default().to_owned();
        exceptions.insert(name, texts(&Item::Value(table["allow"].clone()), None));
    }
    let packages = packages(&policy)?;
    ensure!(packages.len() > 200, "only {} packages", packages.len());
    let mut used = BTreeSet::new();
    for [name, version, licence, _] in &packages {
        let may = allowed(licence, &names).with_context(|| format!("{name} {version}: {licence:?}"))?;
        let excepted = exceptions.get(name).map(|more| [&names[..], more].concat());
        if let Some(with) = excepted.filter(|_| !may) {
            used.insert(name.clone());
            ensure!(allowed(licence, &with)?, "{name} {version}: {licence:?}, in spite of its exception");
        } else {
            ensure!(may, "{name} {version} is under {licence:?}, which deny.toml does not allow");
        }
    }
    ensure!(used.len() == exceptions.len(), "of the exceptions only {used:?} are needed");
    ensure!(!allowed("GPL-3.0-only", &names)? && !allowed("MIT AND GPL-3.0-only", &names)?);
    ensure!(allowed("MIT OR GPL-3.0-only", &names)?);
    Ok(())
}

#[test]
fn everything_comes_from_the_registry_and_nothing_that_is_banned() -> anyhow::Result<()> {
    let policy = policy()?;
    let registries = texts(&policy["sources"]["allow-registry"], None);
    let banned = texts(&policy["bans"]["deny"], Some("crate"));
    ensure!(!registries.is_empty() && !banned.is_empty());
    for [name, version, _, source] in packages(&policy)? {
        // Ours have no source.
        let known = source.is_empty() || registries.iter().any(|registry| source == format!("registry+{registry}"));
        ensure!(known, "{name} {version} comes from {source}");
        ensure!(!banned.contains(&name), "{name} {version} is banned");
    }
    Ok(())
}

#[test]
fn two_versions_of_a_crate_are_there_for_a_reason_only() -> anyhow::Result<()> {
    let policy = policy()?;
    let skipped = texts(&policy["bans"]["skip"], Some("crate"));
    let reasons = texts(&policy["bans"]["skip"], Some("reason"));
    ensure!(reasons.len() == skipped.len(), "each that is skipped says why");
    let mut versions = BTreeMap::<String, Vec<String>>::new();
    for [name, version, ..] in packages(&policy)? {
        versions.entry(name).or_default().push(version);
    }
    let mut used = BTreeSet::new();
    for (name, versions) in versions.into_iter().filter(|(_, versions)| versions.len() > 1) {
        let more = versions.iter().filter(|version| {
            let one = format!("{name}@{version}");
            !skipped.contains(&one) || !used.insert(one)
        });
        ensure!(more.count() <= 1, "{name} is there in versions {versions:?}");
    }
    ensure!(used.len() == skipped.len(), "of those that are skipped only {used:?} are there");
    Ok(())
}
