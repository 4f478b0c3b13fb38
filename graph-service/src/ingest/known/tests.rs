use super::*;
use engine::object::Backend;
use std::sync::Arc;

fn key(resource: &str) -> GroupResource {
    let (resource, group) = resource.split_once('.').unwrap_or((resource, ""));
    GroupResource { group: Arc::from(group), resource: Arc::from(resource) }
}

fn kind(resource: &str, version: &str, access: Access) -> ServedKind {
    ServedKind {
        group_resource: key(resource),
        kind: Arc::from("Kind"),
        version: Arc::from(version),
        other_versions: Vec::new(),
        split: false,
        namespaced: true,
        access,
        backend: Backend::Main,
        deletable: true,
        names: Default::default(),
    }
}

fn view(kinds: &[(&str, &str, Access)]) -> View {
    let kinds = kinds.iter().map(|(resource, version, access)| (key(resource), kind(resource, version, *access)));
    View { kinds: kinds.collect(), ..View::default() }
}

fn words(changes: &[Change]) -> Vec<String> {
    let word = |change: &Change| match change {
        Change::Stop(key) => format!("stop {key}"),
        Change::Served(kind) => format!("served {} {}", kind.group_resource, kind.version),
        Change::Unserved(key) => format!("unserved {key}"),
        Change::Start(kind) => format!("start {} {}", kind.group_resource, kind.version),
        Change::Restart(kind) => format!("restart {} {}", kind.group_resource, kind.version),
    };
    changes.iter().map(word).collect()
}

/// A world that knows `before`.
fn knows(before: &View) -> (Known, Instant) {
    let (mut known, now) = (Known::default(), Instant::now());
    known.absorb(before, &Declared::default(), now);
    (known, now)
}

const W: Access = Access::Watched;

#[tokio::test(start_paused = true)]
async fn what_is_new_is_served_and_collected() {
    let (mut known, now) = (Known::default(), Instant::now());
    let view = view(&[("a", "v1", W), ("b", "v1", Access::Listed), ("c", "v1", Access::ReadOnly), ("d", "v1", W)]);
    let changes = known.absorb(&view, &Declared::default(), now);
    let all_are_known_first = ["served a v1", "served b v1", "served c v1", "served d v1", "start a v1", "start d v1"];
    assert_eq!(words(&changes), all_are_known_first);
    assert_eq!(words(&known.absorb(&view, &Declared::default(), now)), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_shrinking_view_takes_away_only_when_it_is_confirmed() {
    let (mut known, now) = knows(&view(&[("a", "v1", W), ("b", "v1", W)]));
    let (full, less) = (view(&[("a", "v1", W), ("b", "v1", W)]), view(&[("a", "v1", W)]));
    let none = Declared::default();
    let at = |seconds: u64| now + Duration::from_secs(seconds);
    assert!(known.absorb(&less, &none, at(1)).is_empty());
    assert!(known.awaits_confirmation());
    assert!(known.absorb(&less, &none, at(2)).is_empty(), "too soon after the first");
    assert!(known.absorb(&full, &none, at(5)).is_empty());
    assert!(!known.awaits_confirmation());
    assert!(known.absorb(&less, &none, at(20)).is_empty(), "it was there in between");
    assert_eq!(words(&known.absorb(&less, &none, at(31))), ["unserved b"]);
    assert_eq!(words(&known.absorb(&full, &none, at(32))), ["served b v1", "start b v1"]);
}

#[tokio::test(start_paused = true)]
async fn a_suspect_group_or_an_incomplete_view_takes_nothing_away() {
    let before = view(&[("a.x.io", "v2", W), ("b.y.io", "v1", W)]);
    let (mut known, now) = knows(&before);
    let mut suspect = view(&[("a.x.io", "v1", Access::ReadOnly), ("new.x.io", "v1", W), ("b.y.io", "v1", W)]);
    suspect.suspects.insert(Arc::from("x.io"), "stale".to_owned());
    let mut incomplete = view(&[("b.y.io", "v1", W)]);
    incomplete.incomplete = Some("half of it".to_owned());
    for round in 0..10 {
        let at = now + CONFIRM_AFTER * round;
        let changes = known.absorb(&suspect, &Declared::default(), at);
        assert_eq!(words(&changes).is_empty(), round > 0, "{changes:?}");
        assert!(known.absorb(&incomplete, &Declared::default(), at).is_empty());
        assert_eq!(&*known.get(&key("a.x.io")).unwrap().version, "v2");
    }
    let fresh = view(&[("a.x.io", "v1", W), ("new.x.io", "v1", W), ("b.y.io", "v1", W)]);
    let changes = known.absorb(&fresh, &Declared::default(), now + CONFIRM_AFTER * 20);
    assert_eq!(words(&changes), ["served a.x.io v1", "restart a.x.io v1"]);
}

#[tokio::test(start_paused = true)]
async fn less_access_must_be_confirmed_and_more_need_not() {
    let (mut known, now) = knows(&view(&[("a", "v1", W)]));
    let (full, less) = (view(&[("a", "v1", W)]), view(&[("a", "v1", Access::ReadOnly)]));
    let none = Declared::default();
    assert!(known.absorb(&less, &none, now).is_empty());
    assert_eq!(words(&known.absorb(&less, &none, now + CONFIRM_AFTER)), ["stop a", "served a v1"]);
    assert_eq!(words(&known.absorb(&full, &none, now + CONFIRM_AFTER)), ["served a v1", "start a v1"]);
}

#[tokio::test(start_paused = true)]
async fn a_definition_confirms_or_denies_a_loss_at_once() {
    let before = view(&[("a.x.io", "v1", W)]);
    let empty = view(&[]);
    let uid = Uid::parse("crd-1").unwrap();

    let (mut known, now) = knows(&before);
    let deleted = Declared { deleted: BTreeSet::from([key("a.x.io")]), ..Declared::default() };
    assert!(known.absorb(&before, &deleted, now).is_empty(), "discovery lags");
    assert_eq!(words(&known.absorb(&empty, &deleted, now)), ["unserved a.x.io"]);

    let (mut known, now) = knows(&before);
    let withdrawn =
        Declared { withdrawn: BTreeSet::from([(Arc::from("x.io"), Arc::from("v1"))]), ..Declared::default() };
    assert_eq!(words(&known.absorb(&empty, &withdrawn, now)), ["unserved a.x.io"]);

    let (mut known, now) = knows(&before);
    let standing = Declared { custom: BTreeMap::from([(key("a.x.io"), uid)]), ..Declared::default() };
    for round in 0..10 {
        assert!(known.absorb(&empty, &standing, now + CONFIRM_AFTER * round).is_empty(), "a cold start of the server");
    }
}

#[tokio::test(start_paused = true)]
async fn a_definition_created_anew_begins_anew() {
    let shown = view(&[("a.x.io", "v1", W)]);
    let now = Instant::now();
    let mut known = Known::default();
    let defined = |uid: &str| Declared {
        custom: BTreeMap::from([(key("a.x.io"), Uid::parse(uid).unwrap())]),
        ..Declared::default()
    };
    known.absorb(&shown, &defined("crd-1"), now);
    assert!(known.absorb(&shown, &Declared::default(), now).is_empty());
    assert!(known.absorb(&shown, &defined("crd-1"), now).is_empty());
    let changes = known.absorb(&shown, &defined("crd-2"), now);
    assert_eq!(words(&changes), ["served a.x.io v1", "restart a.x.io v1"]);
}

#[tokio::test(start_paused = true)]
async fn four_hundred_kinds_that_come_back_as_none_and_as_fewer_are_still_four_hundred() {
    let names: Vec<String> = (0..400).map(|number| format!("r{number}")).collect();
    let shown = |number: usize| -> View {
        view(&names[..number].iter().map(|name| (name.as_str(), "v1", W)).collect::<Vec<_>>())
    };
    let (mut known, now) = knows(&shown(400));
    let at = |seconds: u64| now + Duration::from_secs(seconds);
    // A starting server shows nothing, and says so; then only a part.
    let nothing = View { incomplete: Some("/apis is empty".to_owned()), ..View::default() };
    for (seconds, view) in [(30, &nothing), (60, &nothing), (90, &shown(390)), (120, &shown(400))] {
        assert!(known.absorb(view, &Declared::default(), at(seconds)).is_empty(), "after {seconds} s");
    }
}

fn hidden(known: &Known, view: &View, declared: &Declared) -> Vec<String> {
    let hidden = known.undiscovered(view, declared, &BTreeSet::from([key("ignored.x.io")]));
    hidden.iter().map(ToString::to_string).collect()
}

/// A view that describes the versions of `shown`, and none of `blank`.
fn versions(shown: &[(&str, &str)], blank: &[(&str, &str)]) -> View {
    let of = |&(group, version): &(&str, &str)| (Name::from(group), Name::from(version));
    let blank = blank.iter().map(|name| (of(name), "down".to_owned())).collect();
    View { shown: shown.iter().map(of).collect(), blank, ..View::default() }
}

#[tokio::test(start_paused = true)]
async fn a_version_whose_server_was_never_seen_is_undiscovered_until_it_is() {
    let (declared, now) = (Declared::default(), Instant::now());
    let mut known = Known::default();
    let (up, down) = (&[("x.io", "v1")], &[("x.io", "v1"), ("x.io", "v2"), ("y.io", "")]);
    let mut absorb = |view: View| {
        known.absorb(&view, &declared, now);
        hidden(&known, &view, &declared)
    };
    assert_eq!(absorb(versions(&[], down)), ["*.x.io", "*.y.io"]);
    assert_eq!(absorb(versions(up, &[("x.io", "v2")])), ["*.x.io"], "the other version may serve more");
    assert_eq!(absorb(versions(&[("x.io", "v2")], up)), Vec::<String>::new(), "what it serves is known");
    assert_eq!(absorb(versions(&[], down)), ["*.y.io"]);
    // The APIService goes, and comes back.
    assert_eq!(absorb(versions(&[], &[("x.io", "v2")])), Vec::<String>::new());
    assert_eq!(absorb(versions(&[], up)), ["*.x.io"]);
    let mut view = view(&[("a.y.io", "v1", W)]);
    view.blank = versions(&[], down).blank;
    assert_eq!(absorb(view), ["*.x.io"], "of a group whose versions cannot be read, a kind is known");
}

#[tokio::test(start_paused = true)]
async fn a_kind_may_be_split_while_another_version_of_its_group_was_never_seen() {
    let (declared, now) = (Declared::default(), Instant::now());
    let shows = |shown: &[(&str, &str)], blank: &[(&str, &str)], split: bool| {
        let mut view = View { kinds: view(&[("a.x.io", "v1", W)]).kinds, ..versions(shown, blank) };
        view.kinds.values_mut().for_each(|kind| kind.split = split);
        view.suspects = blank.iter().map(|(group, _)| (Arc::from(*group), "down".to_owned())).collect();
        view
    };
    let mut known = Known::default();
    let mut split = |view: View| {
        let changes = known.absorb(&view, &declared, now);
        let told = changes.iter().any(|change| matches!(change, Change::Served(_)));
        (known.get(&key("a.x.io")).unwrap().split, told)
    };
    let (one, both) = (&[("x.io", "v1")], &[("x.io", "v1"), ("x.io", "v2")]);
    let other = &[("x.io", "v2")];
    assert_eq!(split(shows(one, other, false)), (true, true), "the server of v2 is down at the start");
    assert_eq!(split(shows(one, other, false)), (true, false));
    assert_eq!(split(shows(both, &[], false)), (false, true), "v2 does not have the resource");
    assert_eq!(split(shows(one, other, false)), (false, false), "v2 was seen before it went down");
    assert_eq!(split(shows(one, &[], false)), (false, false));
    assert_eq!(split(shows(one, other, false)), (true, true), "v2 is new, and may have the resource now");
    assert_eq!(split(shows(both, &[], true)), (true, false));
    // Another version of the group is down, and the view shows the split.
    assert_eq!(split(shows(both, &[], false)), (false, true));
    assert_eq!(split(shows(both, &[("x.io", "v3")], true)), (true, true));
}

#[tokio::test(start_paused = true)]
async fn a_definition_is_undiscovered_until_discovery_has_shown_its_kind() {
    let uid = Uid::parse("1").unwrap();
    let custom = ["a.x.io", "ignored.x.io"].map(|resource| (key(resource), uid.clone()));
    let declared = Declared { custom: BTreeMap::from(custom), ..Declared::default() };
    let (mut known, now) = (Known::default(), Instant::now());
    assert_eq!(hidden(&known, &View::default(), &declared), ["a.x.io"]);
    known.absorb(&view(&[("a.x.io", "v1", W)]), &declared, now);
    assert_eq!(hidden(&known, &View::default(), &declared), Vec::<String>::new());
}
