use super::*;
use engine::object::{Access, ResourceVersion};
use serde_json::value::RawValue;
use std::sync::Arc;

fn collection(backend: Backend) -> (Collection, mpsc::Receiver<Input>) {
    let served = ServedKind {
        group_resource: GroupResource { group: Arc::from("example.com"), resource: Arc::from("things") },
        kind: Arc::from("Thing"),
        version: Arc::from("v1"),
        other_versions: Vec::new(),
        split: false,
        namespaced: true,
        deletable: true,
        names: Vec::new(),
        access: Access::Watched,
        backend,
    };
    let (inputs, received) = mpsc::channel(8);
    let selectors = watch::channel(Arc::default()).1;
    (Collection::new(&served, inputs, Arc::default(), Arc::default(), selectors), received)
}

fn object(api_version: &str, kind: &str, version: &str) -> Box<RawValue> {
    let metadata = format!(r#"{{"name":"o","namespace":"n","uid":"u","resourceVersion":"{version}"}}"#);
    let text = format!(r#"{{"apiVersion":"{api_version}","kind":"{kind}","metadata":{metadata}}}"#);
    RawValue::from_string(text).unwrap()
}

#[tokio::test]
async fn a_deleted_of_another_kind_deletes_nothing() {
    let meta = "meta.k8s.io/v1";
    for (api_version, kind, is_ours) in [
        (meta, "PartialObjectMetadata", true),
        ("example.com/v2", "Thing", true),
        ("other.test/v1", "Thing", false),
        ("example.com/v1", "Gadget", false),
        ("v1", "List", false),
        ("v1", "Status", false),
        (meta, "Table", false),
    ] {
        let (mut collection, mut inputs) = collection(Backend::Main);
        let object = object(api_version, kind, "7");
        let taken = collection.take(Step::Deleted(Item::Json(&object))).await;
        assert_eq!(taken.is_ok(), is_ours, "{api_version} {kind}: {taken:?}");
        let input = inputs.try_recv().unwrap();
        assert_eq!(matches!(input, Input::Deleted { .. }), is_ours, "{api_version} {kind}");
        assert_eq!(matches!(input, Input::Unusable { .. }), !is_ours, "{api_version} {kind}");
    }
}

#[tokio::test]
async fn the_main_store_has_no_versions_but_numbers() {
    for (version, is_number) in [("7", true), ("0", false), ("abc", false), ("07", false)] {
        for (backend, taken) in [(Backend::Main, is_number), (Backend::Aggregated, true)] {
            let (mut collection, mut inputs) = collection(backend);
            let object = object("example.com/v1", "Thing", version);
            let deleted = collection.take(Step::Deleted(Item::Json(&object))).await;
            assert_eq!(deleted.is_ok(), taken, "{version} {backend:?}");
            assert_eq!(matches!(inputs.try_recv(), Ok(Input::Deleted { .. })), taken, "{version} {backend:?}");
            let bookmark = collection.take(Step::Told(Tell::Bookmark(ResourceVersion::parse(version)))).await;
            assert_eq!(bookmark.is_ok(), taken, "{version} {backend:?}");
        }
    }
}
