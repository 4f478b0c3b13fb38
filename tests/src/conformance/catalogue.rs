//! Every test of upstream's that applies to a garbage collector, and what covers it here.

use super::cases;
use super::requests;
use anyhow::{Context, ensure};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// One test of upstream's.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// The letter says where the test is: `U` unit tests of the collector, `S` of the API server, `A` of its admission
    /// plugin, `I` integration, `E` end to end.
    pub id: &'static str,
    /// The name of upstream's test.
    pub upstream: &'static str,
    pub cover: Cover,
}

/// The cover of a test of upstream's.
#[derive(Debug, Clone, Copy)]
pub enum Cover {
    By(&'static [Test]),
    /// The reason why the test cannot apply to this design.
    Nothing(&'static str),
}

/// The location of a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Test {
    /// A case of this suite, by name. The case itself names the id.
    Case(&'static str),
    /// The rows of requests to both servers with this id.
    Rows(&'static str),
    /// A test function elsewhere in the tree: the file and the name.
    Unit(&'static str, &'static str),
}

use Cover::{By, Nothing};
use Test::{Case, Rows, Unit};

/// The number of ids for each letter.
const COUNTS: [(char, usize); 5] = [('U', 68), ('S', 14), ('A', 2), ('I', 15), ('E', 11)];

const EDGES: Test = Unit("engine/src/graph/tests.rs", "edges_are_the_same_from_both_ends_after_any_history");
const CLAIMS: Test = Unit("engine/src/leader/tests/evidence.rs", "two_claims_to_one_uid_are_judged_apart");
const DRAWS: Test = Unit("graph-service/src/dot/tests.rs", "draws_what_has_an_edge");
const ENDS: Test = Unit("runtime/src/tasks/tests.rs", "ends_when_all_have_ended_and_aborts_what_runs_until_the_end");
const SHRINKS: Test =
    Unit("graph-service/src/ingest/known/tests.rs", "a_shrinking_view_takes_away_only_when_it_is_confirmed");
const HANDLERS: &str =
    "there are no shared informers and so no handlers to forget: one task follows one collection and ends with it";
const ADMISSION: &str = "upstream's admission plugin runs inside kube-apiserver; nothing here takes its place";

const fn entry(id: &'static str, upstream: &'static str, cover: Cover) -> Entry {
    Entry { id, upstream, cover }
}

/// All entries.
pub const CATALOGUE: &[Entry] = &[
    entry(
        "U1",
        "TestGarbageCollectorConstruction",
        By(&[
            Unit(
                "graph-service/src/ingest/supervisor/tests.rs",
                "served_kinds_are_collected_and_a_failing_one_stops_no_other",
            ),
            Unit("graph-service/src/ingest/supervisor/tests.rs", "a_kind_that_is_gone_is_told_of_when_it_is_confirmed"),
        ]),
    ),
    entry("U2", "TestAttemptToDeleteItem", By(&[Case("one-missing-owner")])),
    entry(
        "U3",
        "TestAttemptToDeleteItemDeleteObjectNotFound",
        By(&[
            Unit("executor-service/src/attempt/tests/deletes.rs", "final_answers_are_reported_as_they_are"),
            Unit("engine/src/leader/tests/sessions.rs", "a_delete_whose_event_never_comes_is_looked_into"),
        ]),
    ),
    entry(
        "U4",
        "TestAttemptToDeleteItemDeleteObjectNotFoundWaitingForDependents",
        By(&[
            Unit(
                "executor-service/src/attempt/tests/deletes.rs",
                "a_waiting_owner_is_read_before_and_its_state_decides",
            ),
            Unit("executor-service/src/attempt/tests/deletes.rs", "final_answers_are_reported_as_they_are"),
        ]),
    ),
    entry("U5", "TestProcessEvent/test1", By(&[EDGES])),
    entry("U6", "TestProcessEvent/test2", By(&[EDGES])),
    entry("U7", "TestProcessEvent/test3", By(&[EDGES])),
    entry("U8", "TestProcessEvent/reverse test2", By(&[EDGES])),
    entry(
        "U9",
        "BenchmarkReferencesDiffs",
        Nothing(
            "measures a function that compares reference lists by uid; here edges are kept by uid and coordinates, and led anew",
        ),
    ),
    entry(
        "U10",
        "TestDependentsRace",
        Nothing("the graph has one owner and no locks: nothing runs beside a change of it"),
    ),
    entry("U11", "TestAbsentOwnerCache", By(&[Case("missing-owners-shared")])),
    entry(
        "U12",
        "TestDeleteOwnerRefPatch",
        By(&[
            Rows("U12"),
            Unit("executor-service/src/attempt/tests/patches.rs", "references_go_by_one_strategic_merge_patch"),
        ]),
    ),
    entry(
        "U13",
        "TestUnblockOwnerReference",
        By(&[
            Rows("U13"),
            Unit(
                "executor-service/src/attempt/tests/patches.rs",
                "unblocking_merges_the_complete_entry_at_the_version_that_was_read",
            ),
        ]),
    ),
    entry(
        "U14",
        "TestOrphanDependentsFailure",
        By(&[
            Unit("engine/src/leader/tests/sessions.rs", "failures_wait_each_in_their_own_way"),
            Unit(
                "executor-service/src/attempt/tests/patches.rs",
                "a_lost_race_of_a_merge_begins_again_three_times_at_most",
            ),
        ]),
    ),
    entry(
        "U15",
        "TestGetDeletableResources/no error",
        By(&[Unit("graph-service/src/ingest/discovery/tests.rs", "verbs_say_how_a_kind_can_be_seen")]),
    ),
    entry(
        "U16",
        "TestGetDeletableResources/nonspecific failure",
        By(&[Unit(
            "graph-service/src/ingest/discovery/tests.rs",
            "a_group_that_cannot_be_read_is_suspect_and_one_without_a_name_makes_all_incomplete",
        )]),
    ),
    entry(
        "U17",
        "TestGetDeletableResources/partial discovery failure",
        By(&[
            Unit(
                "graph-service/src/ingest/discovery/tests.rs",
                "a_server_that_is_down_or_missing_makes_its_group_suspect",
            ),
            Unit("graph-service/src/ingest/known/tests.rs", "a_suspect_group_or_an_incomplete_view_takes_nothing_away"),
        ]),
    ),
    entry(
        "U18",
        "TestGetDeletableResources/discovery failure",
        By(&[Unit("graph-service/src/ingest/discovery/tests.rs", "an_empty_document_is_no_view")]),
    ),
    entry(
        "U19",
        "TestGarbageCollectorSync",
        By(&[
            Unit(
                "graph-service/src/ingest/supervisor/tests.rs",
                "served_kinds_are_collected_and_a_failing_one_stops_no_other",
            ),
            Unit("graph-service/src/ingest/supervisor/tests.rs", "discovery_that_fails_changes_nothing_and_shows"),
            Unit("graph-service/src/ingest/known/tests.rs", "a_suspect_group_or_an_incomplete_view_takes_nothing_away"),
            SHRINKS,
        ]),
    ),
    entry("U20", "TestConflictingData/good child in ns1 -> cluster-scoped owner", By(&[Case("cluster-owner")])),
    entry("U21", "TestConflictingData/bad child in ns1 -> owner in ns2 (child first)", By(&[Case("owner-elsewhere")])),
    entry("U22", "TestConflictingData/bad child in ns1 -> owner in ns2 (owner first)", By(&[Case("owner-elsewhere")])),
    entry(
        "U23",
        "TestConflictingData/bad cluster-scoped child -> owner in ns1 (child first)",
        By(&[Case("cluster-child")]),
    ),
    entry(
        "U24",
        "TestConflictingData/bad cluster-scoped child -> owner in ns1 (owner first)",
        By(&[Case("cluster-child")]),
    ),
    entry(
        "U25",
        "TestConflictingData/good child -> existing owner with non-preferred accessible API version",
        By(&[Case("other-served-version")]),
    ),
    entry(
        "U26",
        "TestConflictingData/child -> existing owner with inaccessible API version (child first)",
        By(&[Case("group-not-served"), Case("version-not-served")]),
    ),
    entry(
        "U27",
        "TestConflictingData/child -> existing owner with inaccessible API version (owner first)",
        By(&[Case("group-not-served")]),
    ),
    entry(
        "U28",
        "TestConflictingData/child -> non-existent owner with inaccessible API version (inaccessible first)",
        By(&[Case("group-not-served-first")]),
    ),
    entry(
        "U29",
        "TestConflictingData/child -> non-existent owner with inaccessible API version (accessible first)",
        By(&[Case("group-not-served-last")]),
    ),
    entry(
        "U30",
        "TestConflictingData/bad child -> existing owner (bad child, good child, bad parent delete, good parent)",
        By(&[Case("wrong-kind-first"), Case("wrong-name"), Case("right-and-wrong-in-one-object")]),
    ),
    entry(
        "U31",
        "TestConflictingData/bad child -> existing owner (bad child, good child, good parent, bad parent delete)",
        By(&[Case("wrong-kind-of-a-dying-owner")]),
    ),
    entry(
        "U32",
        "TestConflictingData/bad child -> existing owner (good child, bad child, good parent)",
        By(&[Case("wrong-kind-last")]),
    ),
    entry(
        "U33",
        "TestConflictingData/cluster-scoped bad child, namespaced good child, missing parent",
        By(&[Case("cluster-child-first-missing")]),
    ),
    entry(
        "U34",
        "TestConflictingData/cluster-scoped bad child, namespaced good child, late observed parent",
        By(&[Case("cluster-child-beside-good")]),
    ),
    entry(
        "U35",
        "TestConflictingData/namespaced good child, cluster-scoped bad child, missing parent",
        By(&[Case("cluster-child-last-missing")]),
    ),
    entry(
        "U36",
        "TestConflictingData/resourceVersion conflict between Get/Delete",
        By(&[
            Case("references-change-under-way"),
            Case("written-to-while-it-goes"),
            Unit(
                "executor-service/src/attempt/tests/deletes.rs",
                "a_conflict_with_unchanged_facts_is_sent_again_at_the_fresh_version",
            ),
            Unit("executor-service/src/attempt/tests/deletes.rs", "what_the_second_look_shows_decides_a_conflict"),
        ]),
    ),
    entry("U37", "TestGetAlternateOwnerIdentity/namespaced alternate version", By(&[Case("claims-in-one-namespace")])),
    entry(
        "U38",
        "TestGetAlternateOwnerIdentity/namespaced alternate kind",
        By(&[Case("claims-in-one-namespace"), CLAIMS]),
    ),
    entry(
        "U39",
        "TestGetAlternateOwnerIdentity/namespaced alternate namespace",
        By(&[Case("claims-in-two-namespaces")]),
    ),
    entry(
        "U40",
        "TestGetAlternateOwnerIdentity/namespaced alternate name",
        By(&[Case("claims-in-one-namespace"), CLAIMS]),
    ),
    entry("U41", "TestGetAlternateOwnerIdentity/cluster alternate version", By(&[Case("claims-by-cluster-child")])),
    entry("U42", "TestGetAlternateOwnerIdentity/cluster alternate kind", By(&[Case("claims-by-cluster-child")])),
    entry("U43", "TestGetAlternateOwnerIdentity/cluster alternate namespace", By(&[Case("claims-by-cluster-child")])),
    entry("U44", "TestGetAlternateOwnerIdentity/cluster alternate name", By(&[Case("claims-by-cluster-child")])),
    entry("U45", "TestGetAlternateOwnerIdentity/first alternate", By(&[Case("claims-in-one-namespace")])),
    entry("U46", "TestGetAlternateOwnerIdentity/last alternate", By(&[Case("claims-in-one-namespace")])),
    entry(
        "U47",
        "TestGetAlternateOwnerIdentity/first alternate of a cluster-scoped child",
        By(&[Case("claims-by-cluster-child")]),
    ),
    entry(
        "U48",
        "TestGetAlternateOwnerIdentity/last alternate of a cluster-scoped child",
        By(&[Case("claims-by-cluster-child")]),
    ),
    entry("U49", "TestGetAlternateOwnerIdentity/ignore unrelated", By(&[Case("claims-in-two-namespaces")])),
    entry("U50", "TestGetAlternateOwnerIdentity/ignore matches", By(&[Case("claims-in-two-namespaces")])),
    entry("U51", "TestGetAlternateOwnerIdentity/collapse duplicates", By(&[Case("claims-in-one-namespace")])),
    entry(
        "U52",
        "TestGraphBuilderLeak",
        By(&[ENDS, Unit("runtime/src/tasks/tests.rs", "what_does_not_stop_in_time_is_named_and_left")]),
    ),
    entry(
        "U53",
        "TestGraphBuilder_SyncMonitorsLeak",
        By(&[
            Unit("runtime/src/tasks/tests.rs", "jobs_are_bounded_keyed_and_their_ends_told_apart"),
            Unit("graph-service/src/ingest/supervisor/tests.rs", "a_kind_that_is_gone_is_told_of_when_it_is_confirmed"),
        ]),
    ),
    entry("U54", "TestSyncMonitorsRemovesEventHandlerOnResourceRemoval", Nothing(HANDLERS)),
    entry("U55", "TestStopMonitorsRemovesEventHandlers", Nothing(HANDLERS)),
    entry("U56", "TestToDOTGraph/simple", By(&[DRAWS])),
    entry("U57", "TestToDOTGraph/missing", By(&[DRAWS])),
    entry("U58", "TestToDOTGraph/drop-no-ref", By(&[DRAWS])),
    entry("U59", "TestToDOTGraph/two-chains", By(&[DRAWS])),
    entry("U60", "TestToDOTGraphObj/simple", By(&[Case("components")])),
    entry("U61", "TestToDOTGraphObj/missing", By(&[Case("components")])),
    entry("U62", "TestToDOTGraphObj/drop-no-ref", By(&[Case("components")])),
    entry("U63", "TestToDOTGraphObj/two-chains-from-owner", By(&[Case("components")])),
    entry("U64", "TestToDOTGraphObj/two-chains-from-child", By(&[Case("components")])),
    entry("U65", "TestToDOTGraphObj/two-chains-choose-both", By(&[Case("components")])),
    entry(
        "U66",
        "TestMarshalDOT/empty.dot",
        By(&[Unit("graph-service/src/dot/tests.rs", "writes_opening_and_closing_lines_of_an_empty_graph")]),
    ),
    entry(
        "U67",
        "TestMarshalDOT/simple.dot",
        By(&[Unit("graph-service/src/dot/tests.rs", "writes_attributes_in_the_order_of_upstream")]),
    ),
    entry("U68", "TestMarshalDOT/escaping.dot", By(&[Unit("graph-service/src/dot/tests.rs", "quotes_as_go_does")])),
    entry("S1", "TestStoreDelete", By(&[Rows("S1")])),
    entry("S2", "TestStoreGracefulDeleteWithResourceVersion", By(&[Rows("S2")])),
    entry("S3", "TestGracefulStoreCanDeleteIfExistingGracePeriodZero", By(&[Rows("S3")])),
    entry("S4", "TestGracefulStoreHandleFinalizers", By(&[Rows("S4")])),
    entry("S5", "TestNonGracefulStoreHandleFinalizers", By(&[Rows("S5")])),
    entry("S6", "TestStoreDeleteWithOrphanDependents", By(&[Rows("S6")])),
    entry("S7", "TestStoreDeletionPropagation", By(&[Rows("S7")])),
    entry("S8", "TestDeletionFinalizersForGarbageCollection", By(&[Rows("S8")])),
    entry("S9", "TestMarkAsDeleting", By(&[Rows("S9")])),
    entry("S10", "TestDeleteWithCachedObject", By(&[Rows("S10")])),
    entry("S11", "TestPreconditionalUpdateWithCachedObject", By(&[Rows("S11")])),
    entry(
        "S12",
        "TestRetryDeleteValidation",
        Nothing(
            "the sandbox has no admission and handles one request at a time: no write can come between a check and a removal",
        ),
    ),
    entry(
        "S13",
        "TestBeforeDelete",
        By(&[Rows("S13"), Unit("sandbox/src/model/tests/deletion.rs", "grace_is_not_shortened_into_the_past")]),
    ),
    entry("S14", "TestDeleteResourceDeleteOptions, TestDeleteCollection…", By(&[Rows("S14")])),
    entry("A1", "TestGCAdmission", Nothing(ADMISSION)),
    entry("A2", "TestBlockOwnerDeletionAdmission", Nothing(ADMISSION)),
    entry("I1", "TestCrossNamespaceReferencesWithWatchCache", By(&[Case("invalid-children")])),
    // The sandbox has no watch cache. The real server has one.
    entry("I2", "TestCrossNamespaceReferencesWithoutWatchCache", By(&[Case("invalid-children")])),
    entry("I3", "TestCascadingDeletion", By(&[Case("cascading")])),
    entry("I4", "TestCreateWithNonExistentOwner", By(&[Case("owner-never-existed")])),
    entry(
        "I5",
        "TestStressingCascadingDeletion",
        By(&[
            Case("stress-default"),
            Case("stress-finalizer"),
            Case("stress-not-orphaned"),
            Case("stress-orphan-dependents"),
            Case("stress-orphan-policy"),
        ]),
    ),
    entry("I6", "TestOrphaning", By(&[Case("stress-orphan-dependents")])),
    entry("I7", "TestSolidOwnerDoesNotBlockWaitingOwner", By(&[Case("solid-beside-waiting")])),
    entry("I8", "TestNonBlockingOwnerRefDoesNotBlock", By(&[Case("not-blocking")])),
    entry("I9", "TestDoubleDeletionWithFinalizer", By(&[Case("deleted-twice")])),
    entry("I10", "TestBlockingOwnerRefDoesBlock", By(&[Case("blocking")])),
    entry("I11", "TestCustomResourceCascadingDeletion", By(&[Case("custom-owns-custom")])),
    entry("I12", "TestMixedRelationships", By(&[Case("custom-owns-builtin")])),
    entry("I13", "TestCRDDeletionCascading", By(&[Case("definition-comes-and-goes")])),
    entry("I14", "TestCascadingDeleteOnCRDConversionFailure", By(&[Case("broken-kind")])),
    entry("I15", "TestClusterScopedOwners", By(&[Case("cluster-scoped-owners")])),
    entry("E1", "should delete pods created by rc when not orphaning", By(&[Case("rc-background")])),
    entry("E2", "should orphan pods created by rc if delete options say so", By(&[Case("rc-orphan")])),
    entry("E3", "should orphan pods created by rc if deleteOptions.OrphanDependents is nil", By(&[Case("rc-default")])),
    entry(
        "E4",
        "should delete RS created by deployment when not orphaning",
        By(&[Case("deployment-background"), Case("deployment-foreground")]),
    ),
    entry(
        "E5",
        "should orphan RS created by deployment when deleteOptions.PropagationPolicy is Orphan",
        By(&[Case("deployment-orphan")]),
    ),
    entry(
        "E6",
        "should keep the rc around until all its pods are deleted if the deleteOptions says so",
        By(&[Case("rc-foreground")]),
    ),
    entry(
        "E7",
        "should not delete dependents that have both valid owner and owner that's waiting for dependents to be deleted",
        By(&[Case("half-with-another-owner")]),
    ),
    entry(
        "E8",
        "should not be blocked by dependency circle",
        By(&[Case("circle"), Case("circle-with-a-tail"), Case("circle-that-lives")]),
    ),
    entry(
        "E9",
        "should support cascading deletion of custom resources",
        By(&[Case("custom-cascade"), Case("custom-cascade-foreground")]),
    ),
    entry("E10", "should support orphan deletion of custom resources", By(&[Case("custom-orphan")])),
    entry("E11", "should delete jobs and pods created by cronjob", By(&[Case("cronjob")])),
];

/// Summarizes the catalogue in one line.
pub fn summary() -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for entry in CATALOGUE {
        let by = match entry.cover {
            Nothing(_) => "do not apply",
            By(tests) if tests.iter().any(|test| matches!(test, Case(_))) => "by cases",
            By(tests) if tests.iter().any(|test| matches!(test, Rows(_))) => "by requests",
            By(_) => "by unit tests",
        };
        *counts.entry(by).or_default() += 1;
    }
    let counts: Vec<String> = counts.into_iter().map(|(by, count)| format!("{count} {by}")).collect();
    format!("catalogue: {} ids, {}", CATALOGUE.len(), counts.join(", "))
}

/// Fails on an id that is missing or present twice, and on a test that does not exist. `root` is the top of the source
/// tree.
pub fn check(root: &Path) -> anyhow::Result<()> {
    let mut ids = BTreeSet::new();
    for entry in CATALOGUE {
        ensure!(ids.insert(entry.id), "{} is there twice", entry.id);
        ensure!(!entry.upstream.is_empty(), "{} has no name", entry.id);
    }
    for (letter, count) in COUNTS {
        for number in 1..=count {
            let id = format!("{letter}{number}");
            ensure!(ids.remove(id.as_str()), "{id} is missing");
        }
    }
    ensure!(ids.is_empty(), "no such ids: {ids:?}");
    let cases = cases::all();
    let mut names = BTreeSet::new();
    for case in &cases {
        ensure!(names.insert(case.name), "two cases are called {}", case.name);
        ensure!(case.name.len() <= 40, "{} is too long for a namespace", case.name);
        for id in case.ids {
            ensure!(CATALOGUE.iter().any(|entry| entry.id == *id), "{} names {id}, which is no id", case.name);
        }
    }
    for entry in CATALOGUE {
        let By(tests) = entry.cover else { continue };
        ensure!(!tests.is_empty(), "{} is covered by nothing", entry.id);
        for test in tests {
            let named = match test {
                Case(name) => cases.iter().any(|case| case.name == *name && case.ids.contains(&entry.id)),
                Rows(_) | Unit(..) => true,
            };
            let exists = named && exists(root, test)?;
            ensure!(exists, "{}: there is no {test:?}", entry.id);
        }
    }
    Ok(())
}

/// Returns whether the test exists. A function counts only under an attribute that makes it a test.
pub fn exists(root: &Path, test: &Test) -> anyhow::Result<bool> {
    Ok(match test {
        Case(name) => cases::all().iter().any(|case| case.name == *name),
        Rows(id) => requests::all().iter().any(|row| row.id == *id),
        Unit(file, name) => {
            let path = root.join(file);
            let text = std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
            is_test_in(&text, name)
        }
    })
}

fn is_test_in(text: &str, name: &str) -> bool {
    let mut under_test = false;
    for line in text.lines().map(str::trim) {
        if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
            under_test = true;
        } else if line.contains("fn ") {
            let declared = line.strip_prefix("async ").unwrap_or(line).strip_prefix("fn ");
            if under_test
                && declared.is_some_and(|rest| rest.strip_prefix(name).is_some_and(|rest| rest.starts_with('(')))
            {
                return true;
            }
            under_test = false;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::is_test_in;

    #[test]
    fn only_what_runs_as_a_test_counts() {
        let text =
            "#[test]\nfn a() {}\nfn b() {}\n#[tokio::test(start_paused = true)]\nasync fn c() {}\n#[test]\nfn de() {}";
        assert!(is_test_in(text, "a") && is_test_in(text, "c") && is_test_in(text, "de"));
        assert!(!is_test_in(text, "b") && !is_test_in(text, "d"));
    }
}
