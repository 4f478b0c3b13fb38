use super::{GROUP, Hold, Holds, is_exempt};
use crate::guard::GuardKind;

#[test]
fn not_knowing_one_kind_holds_without_a_guard() {
    let mut holds = Holds::default();
    assert_eq!(holds.blind(), None);
    for kind in GuardKind::ALL {
        assert!(holds.set_unknown(kind, true));
        assert_eq!(holds.blind(), Some(Hold::Unknown(kind)));
        assert!(!holds.are_pressed(), "there is no guard");
        holds.set_unknown(kind, false);
    }
}

#[test]
fn leases_and_own_objects_are_exempt() {
    for (group, resource, exempt) in
        [("coordination.k8s.io", "leases", true), (GROUP, "pauses", true), ("coordination.k8s.io", "others", false)]
    {
        assert_eq!(is_exempt(group, resource), exempt, "{group} {resource}");
    }
}
