//! Strategies for arbitrary values within the bounds of the wire.

use crate::convert::{DURATION_MAX, LIFETIME_MAX, PauseOrder};
use engine::object::{Excess, Facts, Name, ObjectRef, OwnerReference, ResourceVersion, Uid};
use engine::pace::Rate;
use engine::scope::{Filter, Labelled, OwnerScope, Requirement, Scope, Test};
use engine::work::{
    About, Action, ActionKind, Finding, FindingResult, GoAwayCause, HeldLease, Hello, LeaseId, Origin, Outcome,
    Preconditions, PropagationPolicy, ReportResult, ReturnCause, RevokeMode, SessionNumber, Sighting, Term, ToExecutor,
    ToLeader, Welcome, WorkItem, WorkLease, WorkReport, WorkReturn,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use std::time::Duration;

fn name() -> impl Strategy<Value = Name> {
    "[a-zA-Z0-9./é-]{0,8}".prop_map(Name::from)
}

fn identity() -> impl Strategy<Value = Name> {
    "[a-z0-9]([a-z0-9-]{0,6}[a-z0-9])?".prop_map(Name::from)
}

fn text() -> impl Strategy<Value = String> {
    // Only visible characters, because another test covers escaping on arrival.
    "[ -~é系]{0,12}"
}

fn uid() -> impl Strategy<Value = Uid> {
    let canonical = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}";
    prop_oneof![canonical, "\\PC{1,8}"].prop_map(|text| Uid::parse(&text).expect("not empty"))
}

fn version() -> impl Strategy<Value = ResourceVersion> {
    prop_oneof!["[1-9][0-9]{0,40}", "[0-9a-z]{1,8}"].prop_map(|text| ResourceVersion::parse(&text))
}

fn duration() -> impl Strategy<Value = Duration> {
    (0..=DURATION_MAX.as_nanos() as u64).prop_map(Duration::from_nanos)
}

fn ttl() -> impl Strategy<Value = Duration> {
    (1..=DURATION_MAX.as_nanos() as u64).prop_map(Duration::from_nanos)
}

fn term() -> impl Strategy<Value = Term> {
    (identity(), any::<u64>()).prop_map(|(election, number)| Term { election, number })
}

fn lease_id() -> impl Strategy<Value = LeaseId> {
    any::<(u64, u64)>().prop_map(|(term, number)| LeaseId { term, number })
}

fn object() -> impl Strategy<Value = ObjectRef> {
    (name(), name(), name(), name(), name(), name(), uid()).prop_map(
        |(group, version, resource, kind, namespace, name, uid)| ObjectRef {
            group,
            version,
            resource,
            kind,
            namespace,
            name,
            uid,
        },
    )
}

fn owner() -> impl Strategy<Value = OwnerReference> {
    (name(), name(), name(), uid(), any::<(Option<bool>, Option<bool>)>()).prop_map(
        |(api_version, kind, name, uid, (controller, block_owner_deletion))| OwnerReference {
            api_version,
            kind,
            name,
            uid,
            controller,
            block_owner_deletion,
        },
    )
}

/// The references are in the form that [`Facts::bound`] leaves.
fn sighting() -> impl Strategy<Value = Sighting> {
    let excess = option::of(any::<(u32, u64)>().prop_map(|(count, digest)| Excess { count, digest }));
    (uid(), version(), vec(owner(), 0..3), vec(name(), 0..3), any::<(bool, bool)>(), excess).prop_map(
        |(uid, resource_version, owners, finalizers, (terminating, hold), excess)| {
            let mut facts = Facts {
                owners: if excess.is_some() { Box::default() } else { owners.into() },
                excess,
                finalizers: finalizers.into(),
                terminating,
                hold,
                deletion_time: None,
            };
            facts.bound();
            Sighting { uid, resource_version, facts }
        },
    )
}

fn action() -> impl Strategy<Value = Action> {
    let policies = vec![PropagationPolicy::Background, PropagationPolicy::Foreground, PropagationPolicy::Orphan];
    prop_oneof![
        (select(policies), vec(object(), 0..3))
            .prop_map(|(propagation_policy, owner_checks)| Action::Delete { propagation_policy, owner_checks }),
        (vec(uid(), 0..3), vec(owner(), 0..3), vec(object(), 0..3)).prop_map(|(owner_uids, entries, owner_checks)| {
            Action::RemoveOwnerReferences { owner_uids, entries, owner_checks }
        }),
        vec(owner(), 0..3).prop_map(|entries| Action::UnblockOwnerReferences { entries }),
        identity().prop_map(|finalizer| Action::RemoveFinalizer { finalizer }),
    ]
}

fn preconditions() -> impl Strategy<Value = Preconditions> {
    (version(), any::<(u64, bool)>()).prop_map(|(resource_version, (facts_digest, must_be_terminating))| {
        Preconditions { resource_version, facts_digest, must_be_terminating }
    })
}

pub(crate) fn lease() -> impl Strategy<Value = WorkLease> {
    let item = (any::<(u64, bool, u64)>(), object(), preconditions(), action()).prop_map(
        |((id, read_first, generation), target, preconditions, action)| WorkItem {
            id,
            target,
            preconditions,
            action,
            read_first,
            generation,
        },
    );
    (lease_id(), term(), item, any::<(u32, bool)>(), ttl(), option::of("[0-9a-f-]{0,55}")).prop_map(
        |(id, term, item, (attempt, previous_attempt_ambiguous), execution_limit, traceparent)| WorkLease {
            id,
            term,
            item,
            attempt,
            execution_limit,
            previous_attempt_ambiguous,
            traceparent,
        },
    )
}

fn finding() -> impl Strategy<Value = Finding> {
    let result = prop_oneof![
        sighting().prop_map(FindingResult::Exists),
        Just(FindingResult::Absent),
        Just(FindingResult::OtherUid),
    ];
    (object(), result).prop_map(|(owner, result)| Finding { owner, result })
}

fn about() -> impl Strategy<Value = About> {
    (object(), select(ActionKind::ALL.to_vec()), any::<u64>()).prop_map(|(target, action, decision)| About {
        target,
        action,
        decision,
    })
}

fn report() -> impl Strategy<Value = WorkReport> {
    let ids = (lease_id(), any::<(u64, u32, u16, u32)>(), term(), select(Outcome::ALL.to_vec()));
    let texts = (text(), text(), option::of(text()));
    let spans = (option::of(duration()), duration());
    (ids, option::of(sighting()), vec(finding(), 0..3), texts, spans, option::of(about())).prop_map(
        |(ids, observed, findings, (status_reason, message, webhook), (retry_after, execution_time), about)| {
            let (lease, (item, attempt, http_status, api_calls), term, outcome) = ids;
            WorkReport {
                lease,
                item,
                term,
                attempt,
                outcome,
                observed,
                findings,
                http_status,
                status_reason,
                message,
                webhook,
                retry_after,
                api_calls,
                execution_time,
                audit_id: engine::work::audit_id(&format!("{item}-{attempt}")),
                about: about.map(Box::new),
            }
        },
    )
}

fn returned() -> impl Strategy<Value = WorkReturn> {
    let causes =
        vec![ReturnCause::NotStarted, ReturnCause::KindUnsupported, ReturnCause::TermStale, ReturnCause::SessionLapsed];
    (lease_id(), select(causes)).prop_map(|(lease, cause)| WorkReturn { lease, cause })
}

fn hello() -> impl Strategy<Value = Hello> {
    let held = (lease_id(), any::<(u64, bool)>(), term()).prop_map(|(lease, (item, started), term)| HeldLease {
        lease,
        item,
        term,
        started,
    });
    let kinds = vec(select(ActionKind::ALL.to_vec()), 0..6);
    let names = (identity(), identity(), identity(), text());
    let first = (term(), any::<u64>()).prop_map(|(term, number)| SessionNumber { term, number });
    (names, any::<(u32, u32, u32)>(), kinds, vec(held, 0..3), option::of(term()), option::of(first)).prop_map(
        |(names, (min_protocol, max_protocol, window), kinds, held, known_term, first_session)| {
            let (executor, incarnation, cluster_uid, version) = names;
            Hello {
                executor,
                incarnation,
                min_protocol,
                max_protocol,
                kinds,
                window,
                held,
                known_term,
                first_session,
                version,
                cluster_uid,
                origin: Origin::default(),
            }
        },
    )
}

/// Any message of an executor.
pub(crate) fn to_leader() -> impl Strategy<Value = ToLeader> {
    prop_oneof![
        hello().prop_map(ToLeader::Hello),
        any::<(u64, u32, u32)>().prop_map(|(sequence, started, buffered)| ToLeader::Heartbeat {
            sequence,
            started,
            buffered
        }),
        any::<u32>().prop_map(|max_outstanding| ToLeader::Window { max_outstanding }),
        vec(lease_id(), 1..4).prop_map(|leases| ToLeader::Started { leases }),
        (vec(report(), 1..4), vec(returned(), 0..4))
            .prop_map(|(reports, returns)| ToLeader::Reports { reports, returns }),
        (text(), duration()).prop_map(|(reason, deadline)| ToLeader::Drain { reason, deadline }),
    ]
}

fn welcome() -> impl Strategy<Value = Welcome> {
    let leases = || vec(lease_id(), 0..3);
    (any::<(u64, u32, u32)>(), term(), ttl(), ttl(), leases(), leases()).prop_map(
        |((session, protocol, max_window), term, session_ttl, heartbeat_interval, adopted, dropped)| Welcome {
            session,
            term,
            protocol,
            session_ttl,
            heartbeat_interval,
            adopted,
            dropped,
            max_window,
        },
    )
}

/// Any message of a leader.
pub(crate) fn to_executor() -> impl Strategy<Value = ToExecutor> {
    let results = select(vec![ReportResult::Accepted, ReportResult::AcceptedLate, ReportResult::Unknown]);
    let modes = select(vec![RevokeMode::IfNotStarted, RevokeMode::Stop]);
    let causes = select(vec![
        GoAwayCause::LeaderChanged,
        GoAwayCause::ShuttingDown,
        GoAwayCause::SessionAge,
        GoAwayCause::Superseded,
        GoAwayCause::ProtocolError,
    ]);
    prop_oneof![
        welcome().prop_map(ToExecutor::Welcome),
        (any::<u64>(), ttl(), term()).prop_map(|(sequence, session_ttl, term)| ToExecutor::HeartbeatAck {
            sequence,
            session_ttl,
            term
        }),
        vec(lease(), 1..4).prop_map(|leases| ToExecutor::Grant { leases }),
        vec((lease_id(), results), 1..4).prop_map(|results| ToExecutor::ReportAck { results }),
        (vec(lease_id(), 1..4), modes, text()).prop_map(|(leases, mode, reason)| ToExecutor::Revoke {
            leases,
            mode,
            reason
        }),
        (any::<u16>(), duration()).prop_map(|(rate, valid_for)| ToExecutor::Throttle {
            max_writes_per_second: Rate::per_second(rate.into()),
            valid_for
        }),
        any::<u32>().prop_map(|outstanding| ToExecutor::DrainAck { outstanding }),
        (causes, text(), duration(), duration()).prop_map(|(cause, leader_endpoint, reconnect_after, close_after)| {
            ToExecutor::GoAway { cause, leader_endpoint, reconnect_after, close_after }
        }),
    ]
}

/// Requirements on labels, sorted.
fn requirements() -> impl Strategy<Value = Vec<Requirement>> {
    let value = || "[a-z0-9]([a-zA-Z0-9._-]{0,5}[a-z0-9])?".prop_map(Name::from);
    let test = prop_oneof![
        vec(value(), 1..4).prop_map(Test::In),
        vec(value(), 1..4).prop_map(Test::NotIn),
        Just(Test::Exists),
        Just(Test::DoesNotExist),
    ];
    let key = "([a-z]{1,5}\\.example\\.com/)?[a-zA-Z][a-zA-Z0-9_.-]{0,5}[a-z]".prop_map(Name::from);
    let requirement = (key, test).prop_map(|(key, test)| Requirement { of: Labelled::Label, key, test });
    vec(requirement, 0..5).prop_map(|mut all| {
        all.sort_unstable();
        all.dedup();
        all
    })
}

fn filter() -> impl Strategy<Value = Filter> {
    let resource =
        || (name(), identity()).prop_map(|(group, resource)| engine::object::GroupResource { group, resource });
    let uid = option::of(identity().prop_map(|uid| Uid::parse(&uid).unwrap()));
    let owner = (resource(), prop_oneof![identity(), Just(Name::from(""))], identity(), uid)
        .prop_map(|(resource, namespace, name, uid)| OwnerScope { resource, namespace, name, uid });
    let lists = (vec(resource(), 0..3), vec(identity(), 0..3), vec(identity(), 0..3));
    (lists, requirements(), requirements(), option::of(owner)).prop_map(
        |((resources, namespaces, names), marks, namespace_marks, owner)| Filter {
            resources,
            namespaces,
            names,
            marks,
            namespace_marks,
            owner,
        },
    )
}

pub(crate) fn pause_order() -> impl Strategy<Value = PauseOrder> {
    let id = prop_oneof!["[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", ""];
    (vec(filter(), 0..3), "[a-z]\\PC{0,12}", 1..=LIFETIME_MAX.as_secs(), id).prop_map(
        |(targets, reason, seconds, request_id)| PauseOrder {
            scope: Scope { targets },
            reason,
            lifetime: Duration::from_secs(seconds),
            request_id,
        },
    )
}
