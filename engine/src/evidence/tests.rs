use super::*;
use crate::object::GroupResource;

fn kind(access: Access, backend: Backend) -> ServedKind {
    ServedKind {
        group_resource: GroupResource { group: "g".into(), resource: "things".into() },
        kind: "Thing".into(),
        version: "v1".into(),
        other_versions: alloc::vec::Vec::new(),
        split: false,
        namespaced: true,
        access,
        backend,
        deletable: true,
        names: Default::default(),
    }
}

/// Answers every step with "absent". Returns the questions, with the seconds before each.
fn ask(inquiry: Inquiry, kind: &ServedKind, version: &str) -> (alloc::vec::Vec<(CheckBy, u64)>, Proof) {
    ask_on(inquiry, Ground { kind, listed: true, contradictions: 0 }, version)
}

fn ask_on(mut inquiry: Inquiry, ground: Ground<'_>, version: &str) -> (alloc::vec::Vec<(CheckBy, u64)>, Proof) {
    let mut now = inquiry.not_before;
    let mut asked = alloc::vec![];
    for _ in 0..20 {
        let step = inquiry.next(ground);
        // Delayed questions use another connection.
        assert_eq!(step.fresh, inquiry.done > 0 && inquiry.not_before > now);
        asked.push((step.by, inquiry.not_before.since(now).as_secs()));
        now = now.max(inquiry.not_before);
        let version = (step.by == CheckBy::List).then(|| ResourceVersion::parse(version));
        if let Absence::Proven(proof) = inquiry.absent(now, ground, version.as_ref()) {
            return (asked, proof);
        }
    }
    panic!("no proof after twenty answers: {asked:?}");
}

#[test]
fn each_kind_of_server_demands_its_own_steps() {
    use CheckBy::{List, Read};
    let listed = |version| Proof::Listed { resource_version: ResourceVersion::parse(version) };
    let new = || Inquiry::new(Time::ZERO);
    for access in [Access::Watched, Access::Listed] {
        let main = kind(access, Backend::Main);
        assert_eq!(ask(new(), &main, "7"), (alloc::vec![(List, 0), (List, 1)], listed("7")));
        let aggregated = kind(access, Backend::Aggregated);
        assert_eq!(ask(new(), &aggregated, "7"), (alloc::vec![(List, 0), (Read, 1)], listed("7")));
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
fn the_less_there_is_to_go_by_the_more_lists_have_to_agree() {
    use CheckBy::{List, Read};
    let steps = |backend, listed, shown: bool, contradictions| {
        let kind = kind(Access::Watched, backend);
        let mut inquiry = Inquiry::new(Time::ZERO);
        if shown {
            inquiry.found(Time::ZERO, &ResourceVersion::parse("5"));
        }
        ask_on(inquiry, Ground { kind: &kind, listed, contradictions }, "7").0
    };
    let lists = |many: usize| -> alloc::vec::Vec<(CheckBy, u64)> {
        (0..many).map(|at| (List, if at == 0 { 0 } else { 5 })).collect()
    };
    assert_eq!(steps(Backend::Main, false, false, 0), lists(2), "failed, or never listed");
    assert_eq!(steps(Backend::Main, true, true, 0), lists(3), "a read has shown it");
    assert_eq!(steps(Backend::Main, true, false, 1), lists(3), "answers have contradicted each other");
    assert_eq!(steps(Backend::Main, false, true, 2), lists(8));
    assert_eq!(steps(Backend::Main, false, true, 1000), lists(LISTS_MAX), "and no more than these");
    assert_eq!(steps(Backend::Aggregated, false, false, 0), [(List, 0), (List, 5), (Read, 0)]);
}

#[test]
fn a_kind_without_list_needs_more_reads_for_an_owner_that_a_read_has_found() {
    let kind = kind(Access::ReadOnly, Backend::Main);
    let reads = |found: bool, contradictions| {
        let mut inquiry = Inquiry::new(Time::ZERO);
        if found {
            inquiry.found(Time::ZERO, &ResourceVersion::parse("5"));
        }
        let (asked, proof) = ask_on(inquiry, Ground { kind: &kind, listed: false, contradictions }, "");
        assert_eq!(proof, Proof::ReadTwice);
        assert!(asked[1..].iter().all(|&read| read == (CheckBy::Read, 120)), "{asked:?}");
        asked.len()
    };
    assert_eq!([reads(false, 0), reads(true, 0), reads(false, 1), reads(true, 1000)], [2, 4, 4, LISTS_MAX]);
}

#[test]
fn an_owner_that_was_shown_is_absent_only_past_where_it_was_shown() {
    let kind = kind(Access::Watched, Backend::Main);
    let ground = Ground { kind: &kind, listed: true, contradictions: 0 };
    let at = |version: &str| ResourceVersion::parse(version);
    let mut inquiry = Inquiry::new(Time::ZERO);
    assert_eq!(inquiry.found(Time::ZERO, &at("9")), None);
    for version in ["8", "9"] {
        assert_eq!(inquiry.absent(Time::ZERO, ground, Some(&at(version))), Absence::Contradicts(at("9")));
    }
    assert_eq!(inquiry.absent(Time::ZERO, ground, Some(&at("10"))), Absence::Open);
    assert_eq!(inquiry.found(Time::ZERO, &at("11")), Some(at("10")), "a uid does not come back");
}

#[test]
fn finding_the_owner_voids_what_was_gathered() {
    let kind = kind(Access::ReadOnly, Backend::Main);
    let ground = Ground { kind: &kind, listed: false, contradictions: 0 };
    let version = ResourceVersion::parse("5");
    let mut inquiry = Inquiry::new(Time::ZERO);
    assert_eq!(inquiry.absent(Time::ZERO, ground, None), Absence::Open);
    inquiry.found(Time::ZERO, &version);
    assert_eq!(inquiry.not_before.since_origin(), AGAIN_MIN);
    assert_eq!(inquiry.absent(Time::ZERO, ground, None), Absence::Open, "one answer after a find is one answer");
    for _ in 0..20 {
        inquiry.found(Time::ZERO, &version);
    }
    assert_eq!(inquiry.not_before.since_origin(), AGAIN_MAX);
}
