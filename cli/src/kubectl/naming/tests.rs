use super::*;

fn served(group: &str, version: &str, resource: &str, kind: &str, short: &str) -> Served {
    Served {
        group: group.to_owned(),
        version: version.to_owned(),
        resource: resource.to_owned(),
        singular: kind.to_lowercase(),
        kind: kind.to_owned(),
        short_names: vec![short.to_owned()],
        namespaced: true,
        verbs: vec!["list".to_owned()],
    }
}

fn catalogue() -> Catalogue {
    Catalogue(vec![
        served("", "v1", "pods", "Pod", "po"),
        served("apps", "v1", "deployments", "Deployment", "deploy"),
        served("example.com", "v1", "deployments", "Deployment", "exdep"),
        served("example.com", "v1beta1", "deployments", "Deployment", "exdep"),
    ])
}

#[test]
fn types_are_found_by_every_name_that_kubectl_takes() {
    let catalogue = catalogue();
    let cases = [
        ("pod", "pods v1 "),
        ("PODS", "pods v1 "),
        ("po", "pods v1 "),
        ("pods.v1", "pods v1 "),
        ("Deployment", "deployments v1 apps"),
        ("deploy.apps", "deployments v1 apps"),
        ("deployments.example.com", "deployments v1 example.com"),
        ("deployments.v1beta1.example.com", "deployments v1beta1 example.com"),
    ];
    for (wanted, expected) in cases {
        let found = catalogue.find(wanted).unwrap();
        assert_eq!(format!("{} {} {}", found.resource, found.version, found.group), expected, "{wanted}");
    }
}

#[test]
fn a_slip_of_the_finger_gets_a_suggestion() {
    let refused = catalogue().find("deplyment").unwrap_err();
    assert_eq!(refused, "the server has no resource type \"deplyment\"; did you mean \"deployment\"?");
    let refused = catalogue().find("zebra").unwrap_err();
    assert!(refused.contains("kubectl api-resources"), "{refused}");
}

#[test]
fn words_are_read_as_kubectl_reads_them() {
    let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<String>>();
    let pair = |of: &str, name: &str| (of.to_owned(), name.to_owned());
    assert_eq!(pairs(&words("pod a b")).unwrap(), [pair("pod", "a"), pair("pod", "b")]);
    assert_eq!(pairs(&words("pod/a svc/b")).unwrap(), [pair("pod", "a"), pair("svc", "b")]);
    assert_eq!(pairs(&words("clusterrole/系统:管理员?")).unwrap(), [pair("clusterrole", "系统:管理员?")]);
    for line in ["pod", "pod/a b", "pod a/b", "pod/", "/a", "pod/a%2fb", "pod/..", "pod a\tx"] {
        assert!(pairs(&words(line)).is_err(), "{line}");
    }
}
