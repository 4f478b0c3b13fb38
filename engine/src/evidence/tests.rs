use super::*;
use crate::object::GroupResource;

fn kind(access: Access, backend: Backend) -> ServedKind {
    ServedKind {
        group_resource: GroupResource { group: "g".into(), resource: "things".into() },
        kind: "Thing".into(),
        version: "v1".into(),
        namespaced: true,
        access,
        backend,
        deletable: true,
        names: Default::default(),
    }
}

/// Answers every step with "not there" and gives what was asked, with the seconds waited before each.
fn ask(mut inquiry: Inquiry, kind: &ServedKind, version: &str) -> (alloc::vec::Vec<(CheckBy, u64)>, Proof) {
    let mut now = inquiry.not_before;
    let mut asked = alloc::vec![];
    for _ in 0..10 {
        let step = inquiry.next(kind);
        asked.push((step.by, inquiry.not_before.since(now).as_secs()));
        now = now.max(inquiry.not_before);
        let version = (step.by == CheckBy::List).then(|| ResourceVersion::parse(version));
        if let Some(proof) = inquiry.absent(now, kind, version.as_ref()) {
            return (asked, proof);
        }
    }
    panic!("no proof after ten answers: {asked:?}");
}

#[test]
fn each_kind_of_server_demands_its_own_steps() {
    use CheckBy::{List, Read};
    let listed = |version| Proof::Listed { resource_version: ResourceVersion::parse(version) };
    let new = || Inquiry::new(Time::ZERO);
    for access in [Access::Watched, Access::Listed] {
        let main = kind(access, Backend::Main);
        assert_eq!(ask(new(), &main, "7"), (alloc::vec![(List, 0)], listed("7")));
        let aggregated = kind(access, Backend::Aggregated);
        assert_eq!(ask(new(), &aggregated, "7"), (alloc::vec![(List, 0), (Read, 0)], listed("7")));
        assert_eq!(
            ask(new(), &aggregated, "seven"),
            (alloc::vec![(List, 0), (Read, 0), (List, 10), (Read, 0)], listed("seven"))
        );
    }
    assert_eq!(
        ask(new(), &kind(Access::ReadOnly, Backend::Main), ""),
        (alloc::vec![(Read, 0), (Read, 120)], Proof::ReadTwice)
    );
    let version = ResourceVersion::parse("9");
    assert_eq!(
        ask(Inquiry::after_deleted(Time::ZERO, version.clone()), &kind(Access::Watched, Backend::Aggregated), ""),
        (alloc::vec![(Read, 0)], Proof::WatchDeleted { resource_version: version })
    );
}

#[test]
fn finding_the_owner_voids_what_was_gathered() {
    let kind = kind(Access::ReadOnly, Backend::Main);
    let mut inquiry = Inquiry::new(Time::ZERO);
    assert_eq!(inquiry.absent(Time::ZERO, &kind, None), None);
    inquiry.found(Time::ZERO);
    assert_eq!(inquiry.not_before.since_origin(), AGAIN_MIN);
    assert_eq!(inquiry.absent(Time::ZERO, &kind, None), None, "one answer after a find is one answer");
    for _ in 0..20 {
        inquiry.found(Time::ZERO);
    }
    assert_eq!(inquiry.not_before.since_origin(), AGAIN_MAX);
}
