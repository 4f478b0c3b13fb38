use super::*;

#[test]
fn filters_of_verdicts_are_bounded() {
    let uids = |count: usize| ObjectFilter { uids: vec!["u".to_owned(); count], ..ObjectFilter::default() };
    let of = |resource: &str| ObjectFilter {
        resources: vec![GroupResource { group: "apps".to_owned(), resource: resource.to_owned() }],
        namespaces: vec!["shop".to_owned()],
        ..ObjectFilter::default()
    };
    let found = invalidated(vec![of("deployments"), uids(2), ObjectFilter::default()]).unwrap();
    assert_eq!(found.len(), 3);
    assert_eq!((found[0].conditions(), found[1].conditions(), found[2].conditions()), (2, 1, 1));
    let names = |count: usize| ObjectFilter {
        namespaces: (0..count).map(|number| format!("n{number}")).collect(),
        ..ObjectFilter::default()
    };
    assert!(invalidated(vec![names(500), names(500)]).is_ok());
    let cel = ObjectFilter { cel: "true".to_owned(), ..ObjectFilter::default() };
    for (said, targets) in [
        ("field invalidate.targets has 101 entries", vec![uids(1); 101]),
        ("field invalidate.targets has 1001 conditions", vec![names(500), names(501)]),
        ("field invalidate.targets[0].namespaces has 1001 entries", vec![names(1001)]),
        ("field invalidate.targets[1].cel is set", vec![uids(1), cel]),
        ("field invalidate.targets[0].resources[0].resource is empty", vec![of("")]),
        (
            "field invalidate.targets[0].uids[0].uid is empty",
            vec![ObjectFilter { uids: vec![String::new()], ..uids(0) }],
        ),
    ] {
        let error = invalidated(targets).unwrap_err().to_string();
        assert!(error.starts_with(said), "{said}: {error}");
    }
}
