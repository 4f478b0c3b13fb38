use super::*;
use kube_api::discovery::{Answer, answer, resources};

const CORE: &str = r#"{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","metadata":{},"items":[{"metadata":{},
  "versions":[{"version":"v1","freshness":"Current","resources":[
    {"resource":"pods","responseKind":{"group":"","version":"v1","kind":"Pod"},"scope":"Namespaced","singularResource":"pod",
     "verbs":["create","delete","get","list","patch","update","watch"],"subresources":[{"subresource":"status","verbs":["get"]}]},
    {"resource":"events","responseKind":{"kind":"Event"},"scope":"Namespaced","verbs":["delete","get","list","watch"]},
    {"resource":"bindings","responseKind":{"kind":"Binding"},"scope":"Namespaced","verbs":["create"]},
    {"resource":"componentstatuses","responseKind":{"kind":"ComponentStatus"},"scope":"Cluster","verbs":["get","list"]},
    {"resource":"single","responseKind":{"kind":"Single"},"scope":"Cluster","verbs":["get"]},
    {"resource":"kindless","scope":"Cluster","verbs":["get","list"]},
    {"resource":"../x","responseKind":{"kind":"X"},"scope":"Cluster","verbs":["get","list"]}]}]}]}"#;

fn group(name: &str, versions: &str) -> String {
    format!(r#"{{"metadata":{{"name":"{name}"}},"versions":[{versions}]}}"#)
}

fn version(name: &str, freshness: &str, resources: &[(&str, &str)]) -> String {
    let resources: Vec<String> = resources
        .iter()
        .map(|(name, verbs)| {
            let verbs = verbs.split(' ').map(|verb| format!("\"{verb}\"")).collect::<Vec<_>>().join(",");
            format!(
                r#"{{"resource":"{name}","responseKind":{{"kind":"K-{name}"}},"scope":"Cluster","verbs":[{verbs}]}}"#
            )
        })
        .collect();
    format!(r#"{{"version":"{name}","freshness":"{freshness}","resources":[{}]}}"#, resources.join(","))
}

fn groups(groups: &[String]) -> Document {
    let text = format!(r#"{{"kind":"APIGroupDiscoveryList","items":[{}]}}"#, groups.join(","));
    document(&text)
}

fn document(text: &str) -> Document {
    let Answer::Aggregated(document) = answer(text.as_bytes()).unwrap() else { panic!("{text}") };
    document
}

fn key(group: &str, resource: &str) -> GroupResource {
    GroupResource { group: Arc::from(group), resource: Arc::from(resource) }
}

fn view(document: &Document, services: &Services) -> View {
    View::new(document, services, &BTreeSet::from([key("", "events")])).unwrap()
}

fn none() -> Services {
    Services::Known(BTreeMap::new())
}

const ALL: &str = "get list watch delete";

#[test]
fn verbs_say_how_a_kind_can_be_seen() {
    let view = view(&document(CORE), &none());
    let seen: Vec<String> =
        view.kinds.values().map(|kind| format!("{} {} {:?}", kind.group_resource, kind.kind, kind.access)).collect();
    assert_eq!(
        seen,
        [
            "componentstatuses ComponentStatus Listed",
            "events Event Listed",
            "pods Pod Watched",
            "single Single ReadOnly"
        ]
    );
    let pods = &view.kinds[&key("", "pods")];
    assert_eq!((&*pods.version, pods.namespaced, pods.backend), ("v1", true, Backend::Main));
    assert!(view.suspects.is_empty() && view.incomplete.is_none());
}

#[test]
fn the_first_version_that_has_it_counts() {
    let v2 = version("v2", "Current", &[("a", ALL)]);
    let v1 = version("v1", "Current", &[("a", ALL), ("b", ALL)]);
    let view = view(&groups(&[group("x.io", &format!("{v2},{v1}"))]), &none());
    assert_eq!(&*view.kinds[&key("x.io", "a")].version, "v2");
    assert_eq!(&*view.kinds[&key("x.io", "b")].version, "v1");
}

#[test]
fn what_is_not_fresh_makes_its_group_suspect() {
    let stale = version("v1", "Stale", &[("a", ALL), ("c", "get")]);
    let other = group("y.io", &version("v1", "Current", &[("b", ALL)]));
    let view = view(&groups(&[group("x.io", &stale), other, group("z.io", "")]), &none());
    assert!(view.kinds.contains_key(&key("x.io", "a")), "the last known content may add");
    assert!(!view.kinds.contains_key(&key("x.io", "c")), "only fresh discovery may say that a kind cannot be listed");
    let suspects: Vec<(&str, &str)> = view.suspects.iter().map(|(group, why)| (&**group, why.as_str())).collect();
    assert_eq!(suspects, [("x.io", "version v1 is stale"), ("z.io", "it has no versions")]);
}

#[test]
fn a_group_that_cannot_be_read_is_suspect_and_one_without_a_name_makes_all_incomplete() {
    let good = group("y.io", &version("v1", "Current", &[("b", ALL)]));
    let broken = r#"{"metadata":{"name":"x.io"},"versions":[{"version":7}]}"#.to_owned();
    let shown = view(&groups(&[good.clone(), broken]), &none());
    assert!(shown.suspects.contains_key("x.io") && shown.incomplete.is_none());
    let shown = view(&groups(&[good, "7".to_owned()]), &none());
    assert!(shown.incomplete.is_some());
}

#[test]
fn an_empty_document_is_no_view() {
    let empty = document(r#"{"kind":"APIGroupDiscoveryList","items":[]}"#);
    assert!(empty.incomplete.is_some());
    View::new(&empty, &none(), &BTreeSet::new()).unwrap_err();
}

#[test]
fn an_apiservice_with_a_service_is_a_backend_of_its_own() {
    let document = groups(&[
        group("x.io", &version("v1", "Current", &[("a", ALL)])),
        group("apps", &version("v1", "Current", &[("b", ALL)])),
        group("crd.io", &version("v1", "Current", &[("c", ALL)])),
    ]);
    let backends = |services: &Services| {
        let view = view(&document, services);
        ["x.io a", "apps b", "crd.io c"].map(|name| {
            let (group, resource) = name.split_once(' ').unwrap();
            view.kinds[&key(group, resource)].backend
        })
    };
    let known = Services::Known(BTreeMap::from([((Arc::from("x.io"), Arc::from("v1")), true)]));
    assert_eq!(backends(&known), [Backend::Aggregated, Backend::Main, Backend::Main]);
    let declared_groups = BTreeSet::from([Arc::from("crd.io")]);
    let unreadable = Services::Unreadable { declared_groups: declared_groups.clone(), known: BTreeMap::new() };
    assert_eq!(backends(&unreadable), [Backend::Aggregated, Backend::Main, Backend::Main]);
    let known = BTreeMap::from([((Arc::from("crd.io"), Arc::from("v1")), true)]);
    let outdated = Services::Unreadable { declared_groups, known };
    assert_eq!(backends(&outdated), [Backend::Aggregated, Backend::Main, Backend::Aggregated]);
}

#[test]
fn a_resource_whose_versions_have_different_servers_or_scopes_is_split() {
    let split = |others: &str, services: &Services| {
        let document = groups(&[group("x.io", &format!("{},{others}", version("v1", "Current", &[("a", ALL)])))]);
        let kind = &view(&document, services).kinds[&key("x.io", "a")];
        assert_eq!(kind.other_versions.len(), 1);
        kind.split
    };
    let other = version("v1alpha1", "Current", &[("a", ALL)]);
    let namespaced = other.replace("Cluster", "Namespaced");
    assert_ne!(namespaced, other);
    let aggregated = Services::Known(BTreeMap::from([((Arc::from("x.io"), Arc::from("v1alpha1")), true)]));
    assert!(!split(&other, &none()));
    assert!(split(&other, &aggregated));
    assert!(split(&namespaced, &none()));
}

#[test]
fn a_server_that_is_down_or_missing_makes_its_group_suspect() {
    let document = groups(&[group("x.io", &version("v1", "Current", &[("a", ALL)]))]);
    let services = |group: &str, available: bool| {
        Services::Known(BTreeMap::from([((Arc::from(group), Arc::from("v1")), available)]))
    };
    assert!(view(&document, &services("x.io", true)).suspects.is_empty());
    assert!(view(&document, &services("x.io", false)).suspects.contains_key("x.io"));
    assert!(view(&document, &services("gone.io", true)).suspects.contains_key("gone.io"));
}

#[test]
fn a_version_without_content_is_blank_and_one_that_is_only_old_is_not() {
    let document = groups(&[
        group("x.io", &format!("{},{}", version("v1", "Stale", &[("a", ALL)]), version("v2", "Stale", &[]))),
        group("y.io", &version("v1", "Current", &[])),
        group("z.io", ""),
        group("w.io", ""),
    ]);
    let services = ["x.io", "y.io", "z.io", "gone.io"].map(|group| ((Arc::from(group), Arc::from("v1")), false));
    let view = view(&document, &Services::Known(BTreeMap::from(services)));
    let words = |of: &(Name, Name)| format!("{} {}", of.0, of.1);
    assert_eq!(view.blank.keys().map(words).collect::<Vec<_>>(), ["gone.io v1", "w.io ", "x.io v2", "z.io v1"]);
    assert_eq!(view.shown.iter().map(words).collect::<Vec<_>>(), ["x.io v1", "y.io v1"]);
}

#[test]
fn arbitrary_changes_never_panic() {
    let seed: u64 = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let mut state = seed;
    let mut draw = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).unwrap() % below
    };
    for round in 0..5_000 {
        let mut bytes = CORE.as_bytes().to_vec();
        for _ in 0..=draw(4) {
            let at = draw(bytes.len());
            match draw(3) {
                0 => bytes[at] = u8::try_from(draw(256)).unwrap(),
                1 => drop(bytes.remove(at)),
                _ => bytes.insert(at, b"{}[]\",:\\0n"[draw(10)]),
            }
        }
        let checked = std::panic::catch_unwind(|| {
            if let Ok(Answer::Aggregated(document)) = answer(&bytes) {
                drop(View::new(&document, &none(), &BTreeSet::new()));
            }
            drop(resources(&bytes));
        });
        assert!(checked.is_ok(), "SEED={seed}, round {round}: {:?}", String::from_utf8_lossy(&bytes));
    }
}
