use super::*;
use crate::ingest::request::Failure;
use crate::ingest::scripted::word;
use engine::object::{Access, Backend, ResourceVersion, ServedKind};
use kube_api::metadata::Item;

fn raw(text: &str) -> Box<RawValue> {
    RawValue::from_string(text.to_owned()).unwrap()
}

/// A definition of `widgets.x.io`; `conditions` as `Type=Status:Reason`, separated by blanks.
fn crd(uid: &str, served: &str, conditions: &str) -> Box<RawValue> {
    let conditions: Vec<String> = conditions
        .split_whitespace()
        .map(|condition| {
            let (kind, rest) = condition.split_once('=').unwrap();
            let (status, reason) = rest.split_once(':').unwrap_or((rest, ""));
            format!(r#"{{"type":"{kind}","status":"{status}","reason":"{reason}"}}"#)
        })
        .collect();
    raw(&format!(
        r#"{{"metadata":{{"name":"widgets.x.io","uid":"{uid}"}},"spec":{{"group":"x.io","names":{{"plural":"widgets","kind":"Widget"}},
        "scope":"Namespaced","versions":[{{"name":"v1","served":{served},"schema":{{"deep":[1]}}}}]}},
        "status":{{"acceptedNames":{{"plural":"widgets","kind":"Widget"}},"conditions":[{}]}}}}"#,
        conditions.join(",")
    ))
}

fn service(name: &str, spec: &str, available: &str) -> Box<RawValue> {
    raw(&format!(
        r#"{{"metadata":{{"name":"{name}"}},"spec":{spec},"status":{{"conditions":[{{"type":"Available","status":"{available}"}}]}}}}"#
    ))
}

struct World<T> {
    definitions: Arc<Definitions>,
    watcher: Watcher<T>,
    inputs: mpsc::Receiver<Input>,
}

impl<T: Definition> World<T> {
    fn new() -> World<T> {
        let (sender, inputs) = mpsc::channel(8);
        let definitions = Arc::new(Definitions::default());
        World { watcher: Watcher::new(definitions.clone(), sender), definitions, inputs }
    }

    async fn listed(items: &[&RawValue]) -> World<T> {
        let mut world = World::new();
        world.list(items).await;
        assert!(world.changed());
        world
    }

    async fn take(&mut self, step: Step<'_>) {
        self.watcher.take(step).await.unwrap();
    }

    async fn list(&mut self, items: &[&RawValue]) {
        self.take(Step::Told(Tell::ListBegun)).await;
        for item in items {
            self.take(Step::Listed(Item::Json(item))).await;
        }
        self.take(Step::Told(Tell::ListEnded(ResourceVersion::parse("9")))).await;
    }

    /// Whether the supervisor has been woken since the last call.
    fn changed(&self) -> bool {
        let waiting = self.definitions.changed.notified();
        let mut waiting = std::pin::pin!(waiting);
        waiting.as_mut().enable()
    }

    fn inputs(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.inputs.try_recv().ok()).map(|input| word(&input)).collect()
    }
}

fn widgets() -> GroupResource {
    GroupResource { group: Arc::from("x.io"), resource: Arc::from("widgets") }
}

fn view(version: Option<&str>) -> View {
    let kind = version.map(|version| ServedKind {
        group_resource: widgets(),
        kind: Arc::from("Widget"),
        version: Arc::from(version),
        other_versions: Vec::new(),
        split: false,
        namespaced: true,
        access: Access::Watched,
        backend: Backend::Main,
        deletable: true,
        names: Default::default(),
    });
    View { kinds: kind.map(|kind| (widgets(), kind)).into_iter().collect(), ..View::default() }
}

#[tokio::test]
async fn a_definition_counts_once_it_is_established() {
    let mut world: World<Crd> = World::listed(&[]).await;
    world.take(Step::Seen(Item::Json(&crd("1", "true", "NamesAccepted=True")))).await;
    assert!(world.definitions.declared().custom.is_empty());
    world.take(Step::Seen(Item::Json(&crd("1", "true", "Established=True")))).await;
    assert!(world.changed());
    assert!(world.definitions.declared().custom.contains_key(&widgets()));
    assert!(world.definitions.unmet(&view(None)).is_some(), "discovery lags");
    assert!(world.definitions.unmet(&view(Some("v0"))).is_some(), "another version is not the one");
    assert_eq!(world.definitions.unmet(&view(Some("v1"))), None);
    world.take(Step::Seen(Item::Json(&crd("1", "true", "Established=True")))).await;
    assert!(!world.changed(), "nothing new");
    world.take(Step::Seen(Item::Json(&crd("1", "false", "Established=True")))).await;
    assert!(world.changed() && world.definitions.declared().custom.is_empty());
}

#[tokio::test]
async fn only_a_completed_deletion_empties_the_kind() {
    let standing = crd("1", "true", "Established=True");
    let at_work = crd("1", "true", "Established=True Terminating=True:InstanceDeletionInProgress");
    let failed = crd("1", "true", "Established=True Terminating=True:InstanceDeletionFailed");
    let done = crd("1", "true", "Established=True Terminating=False:InstanceDeletionCompleted");
    for (seen, last, emptied) in [
        (&standing, &standing, false),
        (&at_work, &at_work, false),
        (&failed, &failed, false),
        (&done, &done, true),
        (&at_work, &done, true),
        (&done, &at_work, true),
    ] {
        let mut world: World<Crd> = World::listed(&[&standing]).await;
        world.take(Step::Seen(Item::Json(seen))).await;
        let said = std::ptr::eq(seen, &done).then(|| "emptied Widget.x.io 1".to_owned());
        assert_eq!(world.inputs(), Vec::from_iter(said));
        world.take(Step::Seen(Item::Json(seen))).await;
        assert_eq!(world.inputs(), Vec::<String>::new(), "it was told");
        world.take(Step::Deleted(Item::Json(last))).await;
        let expected = if emptied { vec!["emptied and gone Widget.x.io 1".to_owned()] } else { Vec::new() };
        assert_eq!(world.inputs(), expected);
        assert!(world.definitions.declared().deleted.contains(&widgets()));
        assert!(world.definitions.unmet(&view(Some("v1"))).is_some());
        assert_eq!(world.definitions.unmet(&view(None)), None);
    }
}

#[tokio::test]
async fn a_deletion_that_no_watch_showed_shows_in_the_next_list() {
    let done = crd("1", "true", "Established=True Terminating=False:InstanceDeletionCompleted");
    let mut world: World<Crd> = World::listed(&[&done]).await;
    assert_eq!(world.inputs(), ["emptied Widget.x.io 1"]);
    world.list(&[]).await;
    assert!(world.changed());
    assert_eq!(world.inputs(), ["emptied and gone Widget.x.io 1"]);

    let anew = crd("2", "true", "Established=True");
    let mut world: World<Crd> = World::listed(&[&done]).await;
    world.list(&[&done]).await;
    world.list(&[&anew]).await;
    assert_eq!(world.inputs(), ["emptied Widget.x.io 1", "emptied and gone Widget.x.io 1"]);
    let declared = world.definitions.declared();
    assert!(declared.deleted.is_empty() && declared.custom[&widgets()] == Uid::parse("2").unwrap());
}

#[tokio::test]
async fn a_definition_that_cannot_be_read_is_not_gone() {
    let mut world: World<Crd> = World::listed(&[&crd("1", "true", "Established=True")]).await;
    world.list(&[&raw(r#"{"metadata":{"name":"widgets.x.io"}}"#)]).await;
    assert!(world.definitions.declared().custom.contains_key(&widgets()));
    assert_eq!(world.definitions.errors().len(), 1);
    assert_eq!(
        world.watcher.take(Step::Deleted(Item::Json(&raw("{}")))).await.map_err(|halt| matches!(halt, Halt::Relist(_))),
        Err(true)
    );
}

#[tokio::test]
async fn services_say_who_answers() {
    let mut world: World<Service> = World::listed(&[
        &service("v1.apps", r#"{"group":"apps","version":"v1"}"#, "True"),
        &service("v1.x.io", r#"{"group":"x.io","version":"v1","service":{"name":"s"}}"#, "False"),
    ])
    .await;
    let expected = |available| Services::Known(BTreeMap::from([((Arc::from("x.io"), Arc::from("v1")), available)]));
    assert_eq!(world.definitions.services(), expected(false));
    let up = service("v1.x.io", r#"{"group":"x.io","version":"v1","service":{"name":"s"}}"#, "True");
    world.take(Step::Seen(Item::Json(&up))).await;
    assert!(world.changed());
    assert_eq!(world.definitions.services(), expected(true));
    world.take(Step::Deleted(Item::Json(&up))).await;
    assert!(world.changed());
    assert!(world.definitions.declared().withdrawn.contains(&(Arc::from("x.io"), Arc::from("v1"))));
}

#[tokio::test]
async fn a_failure_ends_the_wait_and_shows() {
    let mut world: World<Service> = World::new();
    world.definitions.are_not_served::<Crd>();
    assert!(!world.definitions.are_settled());
    let failure = Failure { sentence: "list apiservices: 403".to_owned(), status: Some(403), retry_after: None };
    world.take(Step::Told(Tell::ListFailed(failure))).await;
    assert!(world.changed() && world.definitions.are_settled());
    assert_eq!(world.definitions.errors(), ["list apiservices: 403"]);
    let unreadable = || Services::Unreadable { declared_groups: BTreeSet::new(), known: BTreeMap::new() };
    assert_eq!(world.definitions.services(), unreadable());
    world.list(&[]).await;
    assert!(world.definitions.errors().is_empty());
    assert_eq!(world.definitions.services(), Services::Known(BTreeMap::new()));
    // An APIService that is registered from now on is not seen.
    let failure = Failure { sentence: "watch apiservices: 403".to_owned(), status: Some(403), retry_after: None };
    world.take(Step::Told(Tell::WatchLost(engine::follow::WatchEnd::Refused, failure))).await;
    assert_eq!(world.definitions.services(), unreadable());
}
