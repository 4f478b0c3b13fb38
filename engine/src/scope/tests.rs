use super::{Filter, Scope};
use crate::object::GroupResource;
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
