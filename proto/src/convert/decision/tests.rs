//! Records of objects as large as the API server allows, and records about the collector.

use super::*;
use crate::convert::Clock;
use engine::evidence::{Presence, Proof};
use engine::guard::{GuardId, GuardKind};
use engine::leader::Event;
use engine::object::{GroupResource, Name, ObjectRef, OwnerReference, ResourceVersion, Uid};
use engine::parity::{CLASSES, Class, Counts, Disagreement, Outcome as Side, ParityView, Row};
use engine::time::Time;
use engine::view::{EdgeView, OwnerStanding};
use engine::work::{Preconditions, Term};
use proptest::prelude::*;
use prost::Message as _;
use std::time::SystemTime;

/// The size limit of an object at the API server.
const OBJECT_MAX_BYTES: usize = 1024 * 1024 * 3 / 2;

fn clock() -> Clock {
    Clock { now: Time::ZERO, calendar: SystemTime::UNIX_EPOCH }
}

fn text(bytes: usize) -> Name {
    "é".repeat(bytes / 2).as_str().into()
}

fn uid(number: usize, bytes: usize) -> Uid {
    Uid::parse(&format!("{number}{}", "u".repeat(bytes))).unwrap()
}

fn object(name: Name, uid: Uid, bytes: usize) -> ObjectRef {
    let part = || text(bytes.min(253));
    ObjectRef { group: part(), version: part(), resource: part(), kind: part(), namespace: part(), name, uid }
}

/// The grounds of a decision on an object with this number of references, with texts of this length.
fn grounds(references: usize, bytes: usize) -> Grounds {
    let owner = |number: usize| object(text(bytes), uid(number, bytes), bytes);
    let edge = |number: usize| EdgeView {
        owner: owner(number),
        dependent: uid(0, bytes),
        reference: OwnerReference {
            api_version: text(bytes),
            kind: text(bytes),
            name: text(bytes),
            uid: uid(number, bytes),
            controller: Some(true),
            block_owner_deletion: Some(true),
        },
        standing: OwnerStanding::Dangling,
        presence: Presence::Read { position: ResourceVersion::parse(&text(bytes)) },
    };
    let cause = |number: usize| Cause::OwnerAbsent {
        kind: text(bytes),
        namespace: text(bytes),
        name: text(bytes),
        uid: uid(number, bytes),
        proof: Proof::WatchDeleted { resource_version: ResourceVersion::parse(&text(bytes)) },
    };
    Grounds {
        decision: 7,
        preconditions: Preconditions {
            resource_version: ResourceVersion::parse(&text(bytes)),
            facts_digest: 7,
            must_be_terminating: false,
        },
        propagation_policy: None,
        causes: (0..references).map(cause).collect(),
        cause_count: references,
        owners: (0..references).map(edge).collect(),
        owner_count: references,
        chain: (0..references.min(1000)).map(owner).collect(),
        ..*Grounds::unknown(7)
    }
}

fn attempted(grounds: Grounds, bytes: usize) -> DecisionEvent {
    let event = Event::Attempted {
        item: 1,
        age: std::time::Duration::from_secs(1),
        end: AttemptEnd {
            target: object(text(bytes), uid(0, bytes), bytes),
            action: ActionKind::Delete,
            outcome: Outcome::Forbidden,
            executor: text(bytes),
            http_status: 403,
            message: text(4 * bytes).to_string(),
            api_calls: u32::MAX,
            audit_id: text(bytes).to_string(),
            attempt: u32::MAX,
            grounds: Box::new(grounds),
        },
    };
    let term = Term { election: text(bytes.min(253)), number: u64::MAX };
    decision_event(&event, &term, clock()).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn an_event_of_any_object_that_the_api_server_takes_has_a_bounded_size(
        // Few long texts, or many short ones.
        bytes in prop_oneof![0_usize..=253, 254_usize..=2048, Just(OBJECT_MAX_BYTES)],
        share in 1_usize..=100,
    ) {
        let references = (OBJECT_MAX_BYTES / (4 * bytes + 60)).max(1) * share / 100;
        let event = attempted(grounds(references, bytes), bytes);
        prop_assert!(event.encoded_len() <= EVENT_MAX_BYTES, "{}", event.encoded_len());
        prop_assert_eq!((event.owner_count, event.reason_count), (references as u64, references as u64));
        prop_assert_eq!(event.owners.len(), references.min(20));
        let stub = stub(event);
        prop_assert!(stub.encoded_len() <= STUB_MAX_BYTES, "{}", stub.encoded_len());
        prop_assert!(stub.truncated && stub.target.is_some() && stub.decision_id == "0000000000000007");
    }
}

#[test]
fn a_usual_event_is_told_whole() {
    let event = attempted(grounds(20, 253), 253);
    assert_eq!((event.owners.len(), event.reasons.len(), event.cause_chain.len()), (20, 20, 20));
    let owner = &event.owners[19];
    assert_eq!(owner.reference.as_ref().unwrap().name, *text(253));
    assert_eq!(owner.owner_uid, uid(19, 253).to_string());
    assert!(!event.truncated);
}

#[test]
fn a_disagreement_of_long_texts_has_a_bounded_size() {
    let bytes = 100_000;
    let Grounds { owners, owner_count, .. } = grounds(64, bytes);
    let event = Event::Disagreed(Box::new(Disagreement {
        number: u64::MAX,
        outcome: Side::TheirsOnly,
        class: Class::Unknown,
        target: object(text(bytes), uid(0, bytes), bytes),
        action: ActionKind::Delete,
        decided: None,
        at: Time::ZERO,
        version: Some(ResourceVersion::parse(&text(bytes))),
        owners,
        owner_count,
        audited: Some((text(bytes), text(bytes))),
    }));
    let term = Term { election: "election".into(), number: 3 };
    let told = decision_event(&event, &term, clock()).unwrap();
    let disagreement = told.disagreement.as_ref().unwrap();
    assert_eq!((disagreement.user.len(), disagreement.audit_id.len()), (320, 320));
    assert!(told.encoded_len() <= EVENT_MAX_BYTES, "{}", told.encoded_len());
}

#[test]
fn the_numbers_of_many_collections_have_a_bounded_size() {
    let most = u64::MAX;
    let row = Row { agreed: most, ours_only: most, theirs_only: most, unattributed: most, unknown: most };
    let collection =
        |number: usize| GroupResource { group: text(1000), resource: format!("{number:04}").as_str().into() };
    let mut counts = Counts::default();
    (counts.ours_only, counts.theirs_only) = ([1 << 60; CLASSES], [1 << 60; CLASSES]);
    let event = Event::Compared(Box::new(ParityView {
        since: Time::ZERO,
        before: std::time::Duration::ZERO,
        counts,
        collections: (0..512).map(|number| (collection(number), row)).collect(),
        open: usize::MAX,
        unsettled: usize::MAX,
        wait: std::time::Duration::MAX,
        audited: true,
    }));
    let term = Term { election: "election".into(), number: 3 };
    let told = decision_event(&event, &term, clock()).unwrap();
    let told_collections = &told.system.as_ref().unwrap().parity.as_ref().unwrap().collections;
    assert_eq!(told_collections.len(), 256);
    assert_eq!(told_collections[255].group_resource.as_ref().unwrap().group.len(), 320);
    assert!(told.encoded_len() <= EVENT_MAX_BYTES, "{}", told.encoded_len());
}

#[test]
fn a_change_of_the_collector_has_no_target_and_says_what_and_why() {
    let event = Event::GuardTaken {
        id: GuardId { kind: GuardKind::Pause, name: "p".into() },
        uid: Uid::parse("u").unwrap(),
        scope: engine::scope::Scope::default(),
        reason: "maintenance".to_owned(),
        actor: "jane".to_owned(),
        problem: String::new(),
        lasts: Some(std::time::Duration::from_secs(60)),
    };
    let term = Term { election: "election".into(), number: 3 };
    let told = decision_event(&event, &term, clock()).unwrap();
    let system = told.system.clone().unwrap();
    assert_eq!((told.target, told.phase, told.term.unwrap().number), (None, 0, 3));
    assert_eq!((system.kind(), system.name, system.actor), (Kind::PausePressed, "p".to_owned(), "jane".to_owned()));
    assert_eq!(system.reason, "maintenance");
    let bypassed = Event::GateBypassed {
        id: GuardId { kind: GuardKind::Gate, name: "g".into() },
        until: std::time::Duration::from_secs(1_767_268_800),
        reason: "it hangs".to_owned(),
        actor: "jane".to_owned(),
    };
    let system = decision_event(&bypassed, &term, clock()).unwrap().system.unwrap();
    let names = (system.guard.as_str(), system.name.as_str(), system.actor.as_str());
    assert_eq!((system.kind(), names), (Kind::GateBypassed, ("gates/g", "g", "jane")));
    assert_eq!(system.reason, "until 2026-01-01T12:00:00Z: it hangs");
    assert_eq!(decision_event(&Event::TermLost, &term, clock()), None);
    let long = Event::GrantsStopped { why: "x".repeat(10_000) };
    let told = decision_event(&long, &term, clock()).unwrap();
    assert_eq!(told.system.unwrap().reason.len(), TEXT_MAX_BYTES);
}
