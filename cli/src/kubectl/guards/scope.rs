//! The flags of a scope as the spec of a guard. Kinds, namespaces and owners that do not exist are refused.

use crate::kubectl::document::Schema;
use crate::kubectl::ending::Problem;
use crate::kubectl::flags::ScopeFlags;
use crate::kubectl::naming::{Catalogue, Found, Named, Served, is_name, pairs, read};
use crate::kubectl::selector::Requirements;
use crate::kubectl::session::Session;
use engine::object::{GroupResource, in_group};
use engine::scope::{Filter, OwnerScope};
use proto::r#type::v1beta1::ObjectFilter;
use serde_json::Value;

/// A scope with names of the API server.
#[derive(Clone, Debug, Default)]
pub(in crate::kubectl) struct Scope {
    kinds: Vec<Served>,
    owner: Option<(Served, String, String)>,
}

impl ScopeFlags {
    pub(super) fn is_empty(&self) -> bool {
        let lists = self.kind.is_empty() && self.namespace.is_empty() && self.names.is_empty();
        lists && self.selector.is_none() && self.namespace_selector.is_none() && self.owner.is_none()
    }

    /// Resolves kinds and the owner, and checks that all that is named exists.
    pub(in crate::kubectl) async fn resolve(&self, session: &mut Session) -> Result<Scope, Problem> {
        self.whole_names()?;
        let mut scope = Scope::default();
        if !self.kind.is_empty() || self.owner.is_some() {
            let catalogue = Catalogue::ask(session).await?;
            scope.kinds = self.kinds(&catalogue)?;
            scope.owner = self.owner(&catalogue, session.namespace())?;
        }
        for namespace in &self.namespace {
            exists(session, namespaces(), String::new(), namespace).await?;
        }
        if let Some((served, namespace, name)) = &scope.owner {
            exists(session, served.clone(), namespace.clone(), name).await?;
        }
        Ok(scope)
    }

    pub(in crate::kubectl) fn whole_names(&self) -> Result<(), Problem> {
        match self.names.iter().find(|name| !is_name(name) || name.contains('*')) {
            Some(name) => Err(Problem::sentence(format!(
                "--name {name:?} is not the whole name of an object; to select objects by labels, use -l"
            ))),
            None => Ok(()),
        }
    }

    /// The conditions as the graph service takes them. It resolves the kinds itself.
    pub(in crate::kubectl) fn filter(&self, resolved: &Scope) -> Filter {
        let names = |all: &[String]| all.iter().map(|name| name.as_str().into()).collect();
        let labels = |selector: &Option<Requirements>| selector.as_ref().map(Requirements::of_labels);
        let owner = resolved.owner.as_ref().map(|(served, namespace, name)| OwnerScope {
            resource: served.group_resource(),
            namespace: namespace.as_str().into(),
            name: name.as_str().into(),
            uid: None,
        });
        Filter {
            resources: self.kind.clone(),
            namespaces: names(&self.namespace),
            names: names(&self.names),
            marks: labels(&self.selector).unwrap_or_default(),
            namespace_marks: labels(&self.namespace_selector).unwrap_or_default(),
            owner,
        }
    }

    pub(in crate::kubectl) fn kinds(&self, catalogue: &Catalogue) -> Result<Vec<Served>, Problem> {
        let found = self.kind.iter().map(|kind: &GroupResource| catalogue.find(&kind.to_string()).cloned());
        found.collect::<Result<_, _>>().map_err(Problem::sentence)
    }

    fn owner(&self, catalogue: &Catalogue, default: &str) -> Result<Option<(Served, String, String)>, Problem> {
        let Some(owner) = &self.owner else { return Ok(None) };
        let pair = pairs(std::slice::from_ref(owner)).map_err(|why| Problem::sentence(format!("--owner: {why}")))?;
        let Some((of, name)) = pair.into_iter().next() else { return Ok(None) };
        let served = catalogue.find(&of).map_err(Problem::sentence)?.clone();
        let namespace = match (served.namespaced, self.namespace.as_slice()) {
            (false, _) => String::new(),
            (true, []) => default.to_owned(),
            (true, [one]) => one.clone(),
            (true, _) => {
                return Err(Problem::sentence(format!(
                    "--owner {owner} is in one namespace: give -n once, or create a guard for each namespace"
                )));
            }
        };
        Ok(Some((served, namespace, name)))
    }

    /// The targets of the spec. Empty without conditions.
    pub(super) fn targets(&self, scope: &Scope) -> Result<Vec<Value>, Problem> {
        if self.is_empty() {
            return Ok(Vec::new());
        }
        let resources = scope.kinds.iter().map(Served::group_resource).collect();
        let target = ObjectFilter::from(Filter { resources, ..self.filter(scope) });
        Ok(vec![Schema::load()?.message("ownergraph.type.v1beta1.ObjectFilter", &target)?])
    }

    /// The scope in words, as the graph service returns it.
    pub(super) fn words(&self, scope: &Scope) -> String {
        let typed = |served: &Served| in_group(&served.resource, &served.group);
        let mut words = Vec::new();
        if !scope.kinds.is_empty() {
            words.push(scope.kinds.iter().map(typed).collect::<Vec<_>>().join(","));
        }
        for (word, values) in [("in", &self.namespace), ("named", &self.names)] {
            if !values.is_empty() {
                words.push(format!("{word} {}", values.join(",")));
            }
        }
        for (word, selector) in [("with", &self.selector), ("in namespaces with", &self.namespace_selector)] {
            words.extend(selector.as_ref().map(|selector| format!("{word} {selector}")));
        }
        words.extend(scope.owner.as_ref().map(|(served, _, name)| format!("below {}/{name}", typed(served))));
        if words.is_empty() { "everything".to_owned() } else { words.join(" ") }
    }
}

fn namespaces() -> Served {
    let text = str::to_owned;
    Served { version: text("v1"), resource: text("namespaces"), kind: text("Namespace"), ..Served::default() }
}

/// Refuses an object that does not exist. One that cannot be read is a note.
async fn exists(session: &mut Session, served: Served, namespace: String, name: &str) -> Result<(), Problem> {
    let named = Named { served, namespace, name: name.to_owned(), found: Found::Absent };
    let what = super::super::naming::shown(&named.reference());
    if !is_name(name) {
        return Err(Problem::sentence(format!("{what} has no valid name")));
    }
    match read(session, &named).await? {
        Found::There { .. } => Ok(()),
        Found::Absent => Err(Problem::sentence(format!("{what} does not exist; nothing was created"))),
        Found::Unreadable(why) => {
            session.missed(format!("it is not known whether {what} exists: {why}"));
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubectl::selector::requirements;
    use serde_json::json;

    fn catalogue() -> Catalogue {
        let served = |group: &str, resource: &str, singular: &str, short: &[&str], namespaced| Served {
            group: group.to_owned(),
            version: "v1".to_owned(),
            resource: resource.to_owned(),
            singular: singular.to_owned(),
            kind: singular.to_owned(),
            short_names: short.iter().map(|&short| short.to_owned()).collect(),
            namespaced,
            ..Served::default()
        };
        Catalogue(vec![
            served("", "persistentvolumeclaims", "persistentvolumeclaim", &["pvc"], true),
            served("", "nodes", "node", &["no"], false),
            served("apps", "deployments", "deployment", &["deploy"], true),
        ])
    }

    fn kinds(names: &[&str]) -> Vec<GroupResource> {
        names.iter().map(|name| graph_service::options::kind_name(name).unwrap()).collect()
    }

    fn resolved(flags: &ScopeFlags) -> Result<Scope, Problem> {
        let catalogue = catalogue();
        Ok(Scope { kinds: flags.kinds(&catalogue)?, owner: flags.owner(&catalogue, "default")? })
    }

    #[test]
    fn all_conditions_are_in_one_target() {
        let flags = ScopeFlags {
            kind: kinds(&["pvc", "deployments.apps"]),
            namespace: vec!["shop".to_owned()],
            names: vec!["a".to_owned(), "b".to_owned()],
            selector: Some(requirements("app=web,!old").unwrap()),
            namespace_selector: Some(requirements("env in (a,b)").unwrap()),
            owner: Some("deploy/web".to_owned()),
        };
        let scope = resolved(&flags).unwrap();
        insta::assert_snapshot!(crate::kubectl::document::json(&flags.targets(&scope).unwrap().into()).unwrap());
        let words = "persistentvolumeclaims,deployments.apps in shop named a,b with app=web,!old in namespaces with env in (a,b) below deployments.apps/web";
        assert_eq!(flags.words(&scope), words);
        let none = ScopeFlags::default();
        let scope = resolved(&none).unwrap();
        assert_eq!((none.targets(&scope).unwrap(), none.words(&scope)), (Vec::new(), "everything".to_owned()));
    }

    #[test]
    fn a_selector_of_a_resource_keeps_every_requirement() {
        let read = requirements("app=web,app=db,tier!=a,env in (a,b),zone notin (c),canary,!old").unwrap();
        let flags = ScopeFlags { selector: Some(read), ..ScopeFlags::default() };
        let expected = json!({
            "matchLabels": { "app": "web" },
            "matchExpressions": [
                { "key": "app", "operator": "In", "values": ["db"] },
                { "key": "tier", "operator": "NotIn", "values": ["a"] },
                { "key": "env", "operator": "In", "values": ["a", "b"] },
                { "key": "zone", "operator": "NotIn", "values": ["c"] },
                { "key": "canary", "operator": "Exists" },
                { "key": "old", "operator": "DoesNotExist" },
            ],
        });
        assert_eq!(flags.targets(&Scope::default()).unwrap(), [json!({ "labelSelector": expected })]);
    }

    #[test]
    fn an_owner_is_in_the_namespace_of_the_flag_or_of_the_context_or_in_none() {
        let of = |owner: &str, namespaces: &[&str]| {
            let namespace = namespaces.iter().map(|&name| name.to_owned()).collect();
            let flags = ScopeFlags { owner: Some(owner.to_owned()), namespace, ..ScopeFlags::default() };
            let targets = resolved(&flags).and_then(|scope| flags.targets(&scope));
            targets.map(|targets| targets[0]["owner"].clone()).map_err(|why| why.to_string())
        };
        let web =
            |namespace| json!({ "group": "apps", "resource": "deployments", "namespace": namespace, "name": "web" });
        assert_eq!(of("deploy/web", &["shop"]), Ok(web("shop")));
        assert_eq!(of("Deployment/web", &[]), Ok(web("default")));
        assert_eq!(of("node/a", &["shop", "b"]), Ok(json!({ "resource": "nodes", "name": "a" })));
        for (owner, namespaces, why) in [
            ("deploy/web", &["a", "b"][..], "give -n once"),
            ("deploy", &[], "name an object as deploy/NAME"),
            ("deploy/", &[], "is not TYPE/NAME"),
            ("deploys/web", &[], "did you mean"),
            ("", &[], "only a type"),
        ] {
            let said = of(owner, namespaces).unwrap_err();
            assert!(said.contains(why), "{owner}: {said}");
        }
        let unknown = ScopeFlags { kind: kinds(&["widgets.example.com"]), ..ScopeFlags::default() };
        assert!(resolved(&unknown).unwrap_err().to_string().contains("no resource type"));
    }
}
