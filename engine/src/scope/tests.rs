use super::{Filter, Labelled, OwnerScope, Requirement, Scope, Test};
use crate::object::GroupResource;
use alloc::string::ToString;
use alloc::vec::Vec;

fn filter(resources: &[(&str, &str)], namespaces: &[&str]) -> Filter {
    let resource = |&(group, resource): &(&str, &str)| GroupResource { group: group.into(), resource: resource.into() };
    Filter {
        resources: resources.iter().map(resource).collect(),
        namespaces: namespaces.iter().map(|&namespace| namespace.into()).collect(),
        ..Filter::default()
    }
}

#[test]
fn conditions_of_a_filter_are_all_met_and_of_filters_one_is() {
    let jobs_in_a = filter(&[("batch", "jobs")], &["a"]);
    let all_in_b = filter(&[], &["b"]);
    let both = [jobs_in_a.clone(), all_in_b.clone()];
    let table: [(&[Filter], &str); 5] = [
        (&[], "jobs/a jobs/b nodes/"),
        (&[Filter::default()], "jobs/a jobs/b nodes/"),
        (core::slice::from_ref(&jobs_in_a), "jobs/a"),
        (core::slice::from_ref(&all_in_b), "jobs/b"),
        (&both, "jobs/a jobs/b"),
    ];
    for (targets, expected) in table {
        let scope = Scope { targets: targets.to_vec() };
        let covered: Vec<&str> = ["jobs/a", "jobs/b", "nodes/"]
            .into_iter()
            .filter(|place| {
                let (resource, namespace) = place.split_once('/').unwrap();
                scope.may_cover(if resource == "jobs" { "batch" } else { "" }, resource, namespace)
            })
            .collect();
        assert_eq!(covered.join(" "), expected, "{targets:?}");
    }
}

#[test]
fn the_words_name_all_conditions_of_a_scope() {
    let mark = |of, key: &str, test| Requirement { of, key: key.into(), test };
    let target = Filter {
        resources: alloc::vec![GroupResource { group: "apps".into(), resource: "deployments".into() }],
        namespaces: alloc::vec!["a".into(), "b".into()],
        names: alloc::vec!["db".into()],
        marks: alloc::vec![
            mark(Labelled::Label, "app", Test::In(alloc::vec!["db".into()])),
            mark(Labelled::Annotation, "x", Test::DoesNotExist),
        ],
        namespace_marks: alloc::vec![mark(Labelled::Label, "env", Test::NotIn(alloc::vec!["t".into(), "u".into()]))],
        owner: Some(OwnerScope {
            resource: GroupResource { group: "".into(), resource: "nodes".into() },
            namespace: "".into(),
            name: "n".into(),
            uid: None,
        }),
    };
    let scope = Scope { targets: alloc::vec![target, Filter::default()] };
    assert_eq!(
        scope.to_string(),
        "deployments.apps in a,b named db with app=db, !annotation x in namespaces with env notin (t,u) below nodes n; everything"
    );
}
