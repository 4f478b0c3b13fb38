//! Files that describe objects, in YAML or JSON, one object or many. Only the identity of each object is read.

use crate::kubectl::ending::Problem;
use anyhow::{Context as _, anyhow, bail};
use serde::Deserialize;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Maximum size of one file.
const FILE_MAX_BYTES: u64 = 16 << 20;
/// Maximum number of files in one directory.
const FILES_MAX: usize = 1000;
/// Maximum nesting of lists.
const NESTED_MAX: usize = 4;
/// The file names in a directory that kubectl reads as manifests.
const ENDINGS: [&str; 3] = ["json", "yaml", "yml"];

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Manifest {
    pub(super) api_version: String,
    pub(super) kind: String,
    pub(super) metadata: Named,
    items: Option<Vec<Manifest>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Named {
    pub(super) name: String,
    pub(super) namespace: String,
}

/// The objects in files, directories and `-`, each with its place in the input.
pub(super) fn read(places: &[String]) -> Result<Vec<(String, Manifest)>, Problem> {
    let mut all = Vec::new();
    for place in places {
        for (file, text) in texts(place)? {
            let manifests = parse(&text).with_context(|| format!("{file} cannot be used"))?;
            all.extend(manifests.into_iter().map(|manifest| (file.clone(), manifest)));
        }
    }
    if all.is_empty() { Err(Problem::sentence(format!("{} describes no object", places.join(", ")))) } else { Ok(all) }
}

fn texts(place: &str) -> anyhow::Result<Vec<(String, String)>> {
    if place == "-" {
        return Ok(vec![("standard input".to_owned(), text("standard input", io::stdin().lock())?)]);
    }
    if place.contains("://") {
        bail!("{place} is not a file: download it first, and pass it to -f -");
    }
    let path = Path::new(place);
    let paths = if path.is_dir() { within(path)? } else { vec![path.to_owned()] };
    let read = |path: &PathBuf| {
        let name = path.display().to_string();
        let file = File::open(path).with_context(|| format!("{name} cannot be read"))?;
        Ok((name.clone(), text(&name, file)?))
    };
    paths.iter().map(read).collect()
}

fn within(directory: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let unread = || format!("{} cannot be read", directory.display());
    let mut paths = Vec::new();
    for entry in fs::read_dir(directory).with_context(unread)? {
        let path = entry.with_context(unread)?.path();
        let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        if ENDINGS.contains(&ending) && path.is_file() {
            paths.push(path);
        }
        if paths.len() > FILES_MAX {
            bail!("{} contains more than {FILES_MAX} manifests", directory.display());
        }
    }
    paths.sort();
    Ok(paths)
}

fn text(name: &str, from: impl Read) -> anyhow::Result<String> {
    let mut text = String::new();
    from.take(FILE_MAX_BYTES + 1).read_to_string(&mut text).with_context(|| format!("{name} cannot be read"))?;
    let is_whole = u64::try_from(text.len()).is_ok_and(|length| length <= FILE_MAX_BYTES);
    if is_whole { Ok(text) } else { Err(anyhow!("{name} is larger than {FILE_MAX_BYTES} bytes")) }
}

/// The objects of a text, including those in lists.
fn parse(text: &str) -> anyhow::Result<Vec<Manifest>> {
    let json = text.trim_start().starts_with('{');
    let parsed: Option<Vec<Manifest>> =
        json.then(|| serde_json::Deserializer::from_str(text).into_iter().collect::<Result<_, _>>().ok()).flatten();
    let manifests = match parsed {
        Some(manifests) => manifests,
        None => serde_saphyr::from_multiple(text).map_err(|error| one_line(&error.to_string()))?,
    };
    let mut flat = Vec::new();
    manifests.into_iter().try_for_each(|manifest| flatten(manifest, NESTED_MAX, &mut flat))?;
    Ok(flat)
}

/// The first line of an error. The others show the text around the place that it names.
fn one_line(error: &str) -> anyhow::Error {
    let line = error.lines().next().unwrap_or_default();
    anyhow!(line.strip_prefix("error: ").unwrap_or(line).to_owned())
}

fn flatten(manifest: Manifest, depth: usize, into: &mut Vec<Manifest>) -> anyhow::Result<()> {
    match manifest.items {
        Some(items) if manifest.kind.ends_with("List") => match depth.checked_sub(1) {
            Some(depth) => items.into_iter().try_for_each(|item| flatten(item, depth, into)),
            None => bail!("lists are nested more than {NESTED_MAX} deep"),
        },
        _ if manifest.kind.is_empty() || manifest.api_version.is_empty() => {
            bail!("an object has no apiVersion or kind")
        }
        _ if manifest.metadata.name.is_empty() => bail!("a {} has no name", manifest.kind),
        _ => {
            into.push(manifest);
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Result<String, String> {
        let found = parse(text).map_err(|error| error.to_string())?;
        let name = |manifest: &Manifest| {
            let Manifest { api_version, kind, metadata, .. } = manifest;
            format!("{api_version} {kind} {}/{}", metadata.namespace, metadata.name)
        };
        Ok(found.iter().map(name).collect::<Vec<_>>().join("; "))
    }

    #[test]
    fn descriptions_are_read_whatever_their_form() {
        let yaml = "# first\n---\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n  namespace: shop\ndata: {x: y}\n---\n---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: b}\nspec: {replicas: 2}\n";
        assert_eq!(names(yaml).unwrap(), "v1 ConfigMap shop/a; apps/v1 Deployment /b");
        let pod = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","labels":{"a":"b"}}}"#;
        assert_eq!(names(&format!("{pod}\n{pod}")).unwrap(), "v1 Pod /p; v1 Pod /p");
        assert_eq!(names(&format!(r#"{{"apiVersion":"v1","kind":"List","items":[{pod}]}}"#)).unwrap(), "v1 Pod /p");
        assert_eq!(names("").unwrap(), "");
    }

    #[test]
    fn what_is_no_description_is_refused() {
        let nested = (0..6).fold("{kind: X, apiVersion: v1, metadata: {name: x}}".to_owned(), |inner, _| {
            format!("{{kind: List, apiVersion: v1, items: [{inner}]}}")
        });
        for (text, part) in [
            ("kind: Pod\napiVersion: v1\nmetadata: {generateName: a-}", "a Pod has no name"),
            ("just: a map", "has no apiVersion or kind"),
            ("- a\n- b", ""),
            ("{\"kind\": ", ""),
            (nested.as_str(), "more than 4 deep"),
        ] {
            let error = names(text).unwrap_err();
            assert!(error.contains(part) && !error.contains('\n') && !error.starts_with("error:"), "{text}: {error}");
        }
    }
}
