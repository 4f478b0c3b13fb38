use super::*;

#[test]
fn a_body_that_is_no_discovery_document_is_an_error() {
    for body in
        ["", "{}", "404 page not found", r#"{"kind":"Status"}"#, r#"{"kind":"APIGroupDiscoveryList","items":7}"#]
    {
        answer(body.as_bytes()).unwrap_err();
    }
}

#[test]
fn plain_documents_are_read_too() {
    let Answer::CoreVersions(versions) = answer(br#"{"kind":"APIVersions","versions":["v1"]}"#).unwrap() else {
        panic!()
    };
    assert_eq!(versions, ["v1"]);
    let listed =
        br#"{"kind":"APIGroupList","groups":[{"name":"x.io","versions":[{"groupVersion":"x.io/v1","version":"v1"},
        {"groupVersion":"x.io/v2","version":"v2"}],"preferredVersion":{"groupVersion":"x.io/v2","version":"v2"}}]}"#;
    let Answer::GroupVersions(groups) = answer(listed).unwrap() else { panic!() };
    assert_eq!(groups, [("x.io".to_owned(), vec!["v2".to_owned(), "v1".to_owned()])]);
    let list =
        br#"{"kind":"APIResourceList","groupVersion":"v1","resources":[{"name":"pods","namespaced":true,"kind":"Pod",
        "verbs":["get","list"]},{"name":"pods/status","namespaced":true,"kind":"Pod","verbs":["get"]}]}"#;
    let resources = resources(list).unwrap();
    assert_eq!(resources.len(), 1);
    assert!(resources[0].namespaced && resources[0].can("list"));
    super::resources(br#"{"kind":"Status"}"#).unwrap_err();
}
