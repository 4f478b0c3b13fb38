use super::{GROUP, Hold, Holds};

#[test]
fn not_knowing_holds_everything_but_what_is_exempt() {
    let mut holds = Holds::default();
    assert_eq!(holds.find("", "pods", "a"), None);
    holds.set_unknown(true);
    assert_eq!(holds.find("", "pods", "a"), Some(Hold::Unknown));
    for (group, resource) in [("coordination.k8s.io", "leases"), (GROUP, "pauses")] {
        assert_eq!(holds.find(group, resource, "a"), None);
    }
    assert_eq!(holds.find("coordination.k8s.io", "others", "a"), Some(Hold::Unknown));
    assert!(!holds.are_pressed(), "there is no pause");
}
