use crate::FILE_DESCRIPTOR_SET;
use crate::error_reason;
use crate::r#type::v1beta1::ErrorReason;
use prost::Message;
use prost_types::{DescriptorProto, EnumDescriptorProto, FileDescriptorProto, FileDescriptorSet};

fn files() -> Vec<FileDescriptorProto> {
    let set = FileDescriptorSet::decode(FILE_DESCRIPTOR_SET).unwrap();
    set.file.into_iter().filter(|file| file.package().starts_with("ownergraph.")).collect()
}

fn enums_of(message: &DescriptorProto) -> Vec<EnumDescriptorProto> {
    let nested = message.nested_type.iter().flat_map(enums_of);
    message.enum_type.iter().cloned().chain(nested).collect()
}

/// `NAME=1 OTHER=2`, without the prefix and the zero value of each enum.
fn numbers(of: &EnumDescriptorProto) -> String {
    let values = of.value.iter().map(|value| (value.name(), value.number()));
    let prefix = values.clone().find(|(_, number)| *number == 0).unwrap().0.strip_suffix("UNSPECIFIED").unwrap();
    let texts = values.filter(|(_, number)| *number != 0);
    texts.map(|(name, number)| format!("{}={number}", name.strip_prefix(prefix).unwrap())).collect::<Vec<_>>().join(" ")
}

/// Unused and unreserved numbers below the last, of a message and its nested messages.
fn free(of: &DescriptorProto) -> Vec<(String, Vec<i32>)> {
    let used: Vec<i32> = of.field.iter().map(|field| field.number()).collect();
    let is_reserved = |at: &i32| of.reserved_range.iter().any(|range| (range.start()..range.end()).contains(at));
    let last = used.iter().copied().max().unwrap_or(0);
    let own = (1..last).filter(|at| !used.contains(at) && !is_reserved(at)).collect();
    let nested = of.nested_type.iter().flat_map(free);
    std::iter::once((of.name().to_owned(), own)).chain(nested).collect()
}

#[test]
fn numbers_that_were_skipped_are_reserved() {
    for file in files() {
        let messages = file.message_type.iter().flat_map(free);
        let free: Vec<_> = messages.filter(|(_, free)| !free.is_empty()).collect();
        assert!(free.is_empty(), "{}: {free:?}", file.name());
        let nested = file.message_type.iter().flat_map(enums_of);
        for of in file.enum_type.iter().cloned().chain(nested) {
            let used: Vec<i32> = of.value.iter().map(|value| value.number()).collect();
            let is_reserved =
                |at: &i32| of.reserved_range.iter().any(|range| (range.start()..=range.end()).contains(at));
            let last = used.iter().copied().max().unwrap_or(0);
            let free: Vec<i32> = (1..last).filter(|at| !used.contains(at) && !is_reserved(at)).collect();
            assert!(free.is_empty(), "{}: {free:?}", of.name());
        }
    }
}

#[test]
fn every_file_has_a_place_in_go_and_none_shadows_a_module_of_python() {
    let set = FileDescriptorSet::decode(FILE_DESCRIPTOR_SET).unwrap();
    let own: Vec<_> = set.file.iter().filter(|file| !file.name().starts_with("google/")).collect();
    assert_eq!(own.len(), 6);
    for file in own {
        let directory = file.name().rsplit_once('/').unwrap().0;
        let package = file.options.as_ref().and_then(|options| options.go_package.as_deref()).unwrap_or_default();
        assert!(package.starts_with(&format!("ownergraph.dev/proto/{directory};")), "{}: {package}", file.name());
        assert!(file.name().starts_with("ownergraph/"), "{}", file.name());
    }
}

#[test]
fn enum_values_keep_their_numbers() {
    let files = files();
    let all = files.iter().flat_map(|file| {
        let nested = file.message_type.iter().flat_map(enums_of);
        file.enum_type.iter().cloned().chain(nested)
    });
    let mut all = all.map(|of| (String::from(of.name()), numbers(&of))).collect::<Vec<_>>();
    all.sort();
    let expected = [
        ("Cause", "LEADER_CHANGED=1 SHUTTING_DOWN=2 SESSION_AGE=3 SUPERSEDED=4 PROTOCOL_ERROR=5"),
        ("Cause", "NOT_STARTED=1 KIND_UNSUPPORTED=2 TERM_STALE=4 SESSION_LAPSED=5"),
        (
            "Cause",
            "OWNERS_GONE=1 FOREGROUND_CASCADE=2 ORPHAN_REQUESTED=3 DANGLING_REFERENCE=4 CYCLE_BREAK=5 DEPENDENTS_DONE=6",
        ),
        ("ChangeType", "PRESENT=1 ADDED=2 CHANGED=3 REMOVED=4"),
        (
            "Class",
            "UNKNOWN=1 TIMING=2 REFUSED=3 HELD=4 UNPROVEN=5 ORPHANED=6 DROPPED_REFERENCE=7 CYCLE=8 OTHER_VERSION=9 \
             TOO_MANY_REFERENCES=10 OTHER_COORDINATES=11 OWN_CHANGE=12 EARLIER=13",
        ),
        (
            "Code",
            "SOLID_OWNER=1 OWNER_UNVERIFIED=2 OWNER_KIND_UNRESOLVED=3 COLLECTION_UNSYNCED=4 PAUSED=6 \
             PROTECTED=35 AWAITING_APPROVAL=36 GATED=37 OVER_BUDGET=38 \
             FINALIZER_PRESENT=10 BLOCKING_DEPENDENTS=11 CYCLE=12 FORBIDDEN=13 ADMISSION_DENIED=14 BACKOFF=15 NO_EXECUTOR=16 AWAITING_OWN_WRITE=17 \
             INVALID_REFERENCE=18 HOLD_ANNOTATION=19 OWNERS_ABSENT=20 OWNERS_WAITING=21 DEPENDENTS_TO_ORPHAN=22 \
             OWNER_UNREADABLE=23 THROTTLED=24 NOT_LEADING=25 GRANTS_STOPPED=26 OBSERVE_ONLY=27 GRACE_PERIOD=28 \
             NEVER_OBSERVED=29 DELETED=30 COLLECTION_IN_DOUBT=31 CONTENTS_REMAIN=32 \
             UNDONE=33 TOO_MANY_REFERENCES=34",
        ),
        ("Collecting", "QUEUED=1 HELD=2 LEASED=3"),
        ("Effect", "DELETE=1 REFERENCE_REMOVED=2 ORPHANED=3 WAITS=4 HELD=5 UNKNOWN=6"),
        (
            "ErrorReason",
            "NOT_LEADER=1 NO_LEADER=2 REPLICA_BEHIND=3 COLLECTION_UNSYNCED=4 TOKEN_MALFORMED=5 TOKEN_FROM_OTHER_CLUSTER=6 \
             TOKEN_FROM_OTHER_HISTORY=7 RESOURCE_VERSION_NOT_COMPARABLE=8 POSITION_COMPACTED=9 PAGE_TOKEN_EXPIRED=10 \
             PAGE_TOKEN_MISMATCH=11 OBJECT_NOT_FOUND=12 UID_MISMATCH=13 TRAVERSAL_LIMIT=14 SLOW_CONSUMER=15 \
             SESSION_SUPERSEDED=17 SESSION_DRAINED=18 TERM_STALE=19 PROTOCOL_UNSUPPORTED=20 \
             STREAM_PROTOCOL_VIOLATION=21 LIMIT_EXCEEDED=23 CLUSTER_MISMATCH=25 \
             PAUSES_NOT_INSTALLED=26 PAUSE_NOT_FOUND=27 API_SERVER_REFUSES=28 DECISION_NOT_FOUND=29 FIELD_INVALID=30 \
             EXPRESSION_INVALID=31 METHOD_UNKNOWN=32 MESSAGE_TOO_LARGE=33 MESSAGE_UNREADABLE=34 STOPPING=35 CALL_FAILED=36 \
             LOG_UNAVAILABLE=37 \
             CREDENTIALS_MISSING=38 CREDENTIALS_INVALID=39 TOKEN_FOR_OTHER_AUDIENCE=40 ACCESS_DENIED=41 EXECUTOR_MISMATCH=42 \
             REVIEW_UNAVAILABLE=43 EXECUTOR_UNTRUSTED=44 EXECUTOR_NAME_TAKEN=45 NOT_GRPC=46 GATE_NOT_FOUND=47 GATE_NOT_STREAMED=48 \
             MODE_OBSERVE=49 NOT_OBSERVING=50",
        ),
        ("EventEncoding", "NATIVE=1 CLOUDEVENTS=2"),
        ("EventView", "BASIC=1 FULL=2"),
        ("FailurePolicy", "ALLOW=1 HOLD=2 DENY=3"),
        ("GateVerdict", "ALLOW=1 DENY=2 HOLD=3 ABSTAIN=4"),
        ("GuardEffect", "HELD=1 AWAITS_APPROVAL=2 ASKED=3 OVER_BUDGET=4"),
        ("ItemKind", "DELETE=1 REMOVE_OWNER_REFERENCES=2 UNBLOCK_OWNER_REFERENCES=3 REMOVE_FINALIZER=4"),
        ("Kind", "PAUSE=1 PROTECTION=2 APPROVAL=3 GATE=4 BUDGET=5"),
        (
            "Kind",
            "PAUSE_PRESSED=1 PAUSE_EFFECTIVE=2 PAUSE_ENDED=3 PAUSES_UNKNOWN=4 PAUSES_KNOWN=5 GRANTS_STOPPED=6 \
             GRANTS_RESUMED=7 STORE_REWOUND=8 EXECUTOR_REFUSED=9 EXECUTOR_SUPERSEDED=10 GUARD_TAKEN=11 \
             GUARD_EFFECTIVE=12 GUARD_ENDED=13 GUARDS_UNKNOWN=14 GUARDS_KNOWN=15 \
             BUDGET_EXCEEDED=16 APPROVAL_NEEDED=17 APPROVED=18 GATE_ANSWERED=19 \
             BREAKER_OPENED=20 GATE_BYPASSED=21 COMPARED=22",
        ),
        ("Mode", "IF_NOT_STARTED=1 STOP=2"),
        ("NodeState", "LIVE=1 TERMINATING=2 VIRTUAL=3 GONE=4"),
        (
            "Outcome",
            "DONE=1 UNCHANGED=2 GONE=3 REPLACED=4 CONFLICT=5 OWNER_EXISTS=6 FORBIDDEN=8 ADMISSION_DENIED=9 \
             ADMISSION_FAILED=10 THROTTLED=11 UNSUPPORTED=12 INVALID=13 TRANSIENT=14 AMBIGUOUS=15 ABANDONED=16 UNAUTHENTICATED=17",
        ),
        ("Outcome", "OURS_ONLY=1 THEIRS_ONLY=2"),
        (
            "OwnerStanding",
            "SOLID=1 DANGLING=2 WAITING=3 UNVERIFIED=4 INVALID_SCOPE=5 WRONG_NAMESPACE=6 KIND_UNRESOLVED=7 \
             COORDINATES_MISMATCH=8 ORPHANING=9",
        ),
        (
            "Phase",
            "PROPOSED=1 HELD=2 LEASED=5 SUCCEEDED=6 FAILED=7 PARKED=8 SUPERSEDED=9 CONFIRMED=10 AWAITING_FINALIZERS=11 RELEASED=12 \
             DISAGREED=13",
        ),
        ("PropagationPolicy", "BACKGROUND=1 FOREGROUND=2 ORPHAN=3"),
        ("ReplicaRole", "LEADER=1 STANDBY=2 SYNCING=3"),
        ("Result", "ACCEPTED=1 ACCEPTED_LATE=2 UNKNOWN=4"),
        ("Result", "EXISTS=1 ABSENT=2 OTHER_UID=3"),
        ("Source", "WATCH=1 LIVE_READ=2 INFERRED=3 LIST=4 TYPE_EMPTIED=5 READ_TWICE=6"),
        ("State", "IN_MEMORY=1 CONNECTING=2 WRITING=3 CATCHING_UP=4 AWAY=5"),
        ("State", "SYNCED=1 LISTING=2 STALE=3 FAILED=4 IGNORED=5"),
        ("Verdict", "KEPT=1 UNOWNED=2 COLLECTABLE=3 UNDECIDED=4 HELD=5 IN_PROGRESS=6 BLOCKED=7 PARKED=8 GONE=9"),
        ("Want", "WAITING=2"),
    ];
    let expected = expected.map(|(name, numbers)| (String::from(name), String::from(numbers)));
    assert_eq!(all, expected);
}

/// Paths in `descriptor.proto` numbering of all named elements of `message`.
fn names_in_message(path: &[i32], message: &DescriptorProto, names: &mut Vec<Vec<i32>>) {
    let at = |tag: i32, index: usize| [path, &[tag, index as i32]].concat();
    names.push(path.to_vec());
    names.extend((0..message.field.len()).map(|index| at(2, index)));
    for (index, nested) in message.nested_type.iter().enumerate() {
        // The entries of a map have no comment.
        if !nested.options.as_ref().is_some_and(|options| options.map_entry()) {
            names_in_message(&at(3, index), nested, names);
        }
    }
    for (index, of) in message.enum_type.iter().enumerate() {
        names_in_enum(&at(4, index), of, names);
    }
    // Nor has the oneof of an optional field.
    let oneofs = message.oneof_decl.iter().enumerate().filter(|(_, oneof)| !oneof.name().starts_with('_'));
    names.extend(oneofs.map(|(index, _)| at(8, index)));
}

fn names_in_enum(path: &[i32], of: &EnumDescriptorProto, names: &mut Vec<Vec<i32>>) {
    names.push(path.to_vec());
    names.extend((0..of.value.len()).map(|index| [path, &[2, index as i32]].concat()));
}

/// The reference is generated from the comments.
#[test]
fn everything_has_a_comment() {
    for file in files() {
        let mut names = Vec::new();
        for (index, message) in file.message_type.iter().enumerate() {
            names_in_message(&[4, index as i32], message, &mut names);
        }
        for (index, of) in file.enum_type.iter().enumerate() {
            names_in_enum(&[5, index as i32], of, &mut names);
        }
        for (index, service) in file.service.iter().enumerate() {
            names.push(vec![6, index as i32]);
            names.extend((0..service.method.len()).map(|method| vec![6, index as i32, 2, method as i32]));
        }
        let locations = &file.source_code_info.as_ref().unwrap().location;
        for name in names {
            let location = locations.iter().find(|location| location.path == name).unwrap();
            assert!(location.leading_comments.is_some(), "{}:{} has no comment", file.name(), location.span[0] + 1);
        }
    }
}

#[test]
fn reasons_are_spelled_without_prefix_and_read_again() {
    assert_eq!(error_reason::text(ErrorReason::NotLeader), "NOT_LEADER");
    assert_eq!(error_reason::parse("CLUSTER_MISMATCH"), Some(ErrorReason::ClusterMismatch));
    assert_eq!(error_reason::parse("ERROR_REASON_NOT_LEADER"), None);
    assert_eq!(error_reason::parse(""), None);
}
