//! The targets of a deletion: named objects, objects that match a selector, or objects in files.

use super::ending::Problem;
use super::flags::Targets;
use super::naming::{self, Catalogue, Found, Metadata, Named, Served, is_name};
use super::session::Session;
use crate::name::quoted;
use engine::object::in_group;
use kube::api::ListParams;
use manifest::Manifest;
use std::collections::BTreeSet;

mod manifest;

/// The graph service's limit of targets for one plan.
const TARGETS_MAX: usize = 100;
/// One more than the limit, so that one page shows whether there are too many.
const PAGE_SIZE: u32 = 101;

/// Reads the metadata of each object. The result is empty if a selector matches no object.
pub(super) async fn resolve(session: &mut Session, targets: &Targets) -> Result<Vec<Named>, Problem> {
    let mut named = if !targets.filename.is_empty() {
        in_files(session, &targets.filename).await?
    } else if targets.selects() {
        selected(session, targets).await?
    } else {
        naming::resolve(session, &targets.objects).await?
    };
    // The plan of an object that is named twice would lack one of them.
    let mut met = BTreeSet::new();
    named.retain(|object| match &object.found {
        Found::There { uid, .. } => met.insert(uid.clone()),
        Found::Absent | Found::Unreadable(_) => true,
    });
    match named.len() {
        0..=TARGETS_MAX => Ok(named),
        more => Err(too_many(&more.to_string())),
    }
}

fn too_many(count: &str) -> Problem {
    Problem::sentence(format!("{count} objects match, but a plan accepts at most {TARGETS_MAX}: select fewer"))
}

impl Targets {
    fn selects(&self) -> bool {
        self.selector.is_some() || self.field_selector.is_some()
    }

    /// The same targets as words for a shell.
    pub(super) fn words(&self, named: &[Named]) -> String {
        if !self.filename.is_empty() {
            return self.filename.iter().map(|file| format!("-f {}", quoted(file))).collect::<Vec<_>>().join(" ");
        }
        if !self.selects() {
            return named.iter().map(type_and_name).collect::<Vec<_>>().join(" ");
        }
        let labels = self.selector.as_ref().map(|labels| format!("-l {}", quoted(&labels.to_string())));
        let fields = self.field_selector.as_ref().map(|fields| format!("--field-selector={}", quoted(fields)));
        let types = self.objects.iter().map(|of| quoted(of));
        types.chain(labels).chain(fields).collect::<Vec<_>>().join(" ")
    }

    /// The flag ` -n shop` or ` -A`, if the same targets need it.
    pub(super) fn place(&self, session: &Session, named: &[Named]) -> String {
        let needed = named.iter().any(|object| object.served.namespaced);
        // Objects in files may have a namespace of their own.
        let is_meant = self.filename.is_empty() || session.namespace_is_given();
        match session.searched() {
            Some(namespace) if needed && is_meant => format!(" -n {namespace}"),
            Some(_) => String::new(),
            None => " -A".to_owned(),
        }
    }
}

fn type_and_name(object: &Named) -> String {
    format!("{}/{}", in_group(&object.served.resource, &object.served.group), object.name)
}

/// The objects of these types that match the selectors.
async fn selected(session: &Session, targets: &Targets) -> Result<Vec<Named>, Problem> {
    let types: Vec<&str> = targets.objects.iter().flat_map(|word| word.split(',')).collect();
    if let Some(name) = types.iter().find(|of| of.contains('/')) {
        return Err(Problem::sentence(format!("{name:?} names an object; with a selector, name types only")));
    }
    let mut wanted = ListParams::default().limit(PAGE_SIZE);
    wanted.label_selector = targets.selector.as_ref().map(ToString::to_string);
    wanted.field_selector.clone_from(&targets.field_selector);
    let catalogue = Catalogue::ask(session).await?;
    let mut all = Vec::new();
    let mut met = BTreeSet::new();
    for of in types {
        let served = catalogue.find(of).map_err(Problem::sentence)?;
        let namespace = if served.namespaced { session.searched().unwrap_or_default() } else { "" };
        let page = naming::list(session, served, namespace, &wanted).await?;
        // A page with fewer objects than its limit may not be the last.
        if page.goes_on {
            return Err(too_many(&format!("{} or more", page.objects.len())));
        }
        for metadata in page.objects {
            if met.insert(metadata.uid.clone()) {
                let Metadata { name, namespace, uid, resource_version } = metadata;
                let found = Found::There { uid, resource_version };
                all.push(Named { served: served.clone(), namespace, name, found });
            }
        }
        if all.len() > TARGETS_MAX {
            return Err(too_many(&format!("{} or more", all.len())));
        }
    }
    Ok(all)
}

/// The objects that files describe, by their type, namespace and name.
async fn in_files(session: &mut Session, files: &[String]) -> Result<Vec<Named>, Problem> {
    let manifests = manifest::read(files)?;
    if manifests.len() > TARGETS_MAX {
        return Err(too_many(&manifests.len().to_string()));
    }
    let catalogue = Catalogue::ask(session).await?;
    let mut all: Vec<Named> = Vec::new();
    for (file, manifest) in manifests {
        let (served, namespace, name) = place(session, &catalogue, &manifest).map_err(|why| {
            Problem::sentence(format!("{file}: {} {:?} {why}", manifest.kind, manifest.metadata.name))
        })?;
        let named = naming::look(session, served, namespace, name).await?;
        if !all.contains(&named) {
            all.push(named);
        }
    }
    Ok(all)
}

/// The error is a sentence without its subject.
fn place(session: &Session, catalogue: &Catalogue, manifest: &Manifest) -> Result<(Served, String, String), String> {
    let Manifest { api_version, kind, metadata, .. } = manifest;
    let served = catalogue.of_kind(api_version, kind);
    let served = served.ok_or_else(|| format!("has a kind that the server does not serve in {api_version}"))?;
    if !is_name(&metadata.name) {
        return Err("has no name that is valid in a path".to_owned());
    }
    let namespace = match metadata.namespace.as_str() {
        _ if !served.namespaced => String::new(),
        "" => session.namespace().to_owned(),
        own if session.namespace_is_given() && own != session.namespace() => {
            return Err(format!("is in namespace {own:?}, but -n is {:?}", session.namespace()));
        }
        own if !is_name(own) => return Err(format!("is in {own:?}, which is not a valid namespace")),
        own => own.to_owned(),
    };
    Ok((served.clone(), namespace, metadata.name.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubectl::flags::Cascade;
    use crate::kubectl::selector::labels;

    #[test]
    fn targets_are_told_as_a_shell_takes_them() {
        let none = Targets {
            objects: vec![],
            filename: vec![],
            selector: None,
            field_selector: None,
            cascade: Cascade::Background,
        };
        let files = Targets { filename: vec!["a b.yaml".into(), "-".into()], ..none.clone() };
        assert_eq!(files.words(&[]), "-f 'a b.yaml' -f -");
        let selector = Some(labels("app=web,env in (a,b)").unwrap());
        let field_selector = Some("status.phase!=Running".to_owned());
        let selected = Targets { objects: vec!["pods,cm".into()], selector, field_selector, ..none };
        assert_eq!(selected.words(&[]), "pods,cm -l 'app=web,env in (a,b)' --field-selector='status.phase!=Running'");
    }
}
