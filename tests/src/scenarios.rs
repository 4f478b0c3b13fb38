//! Incidents of other clusters, and the tests that show that they do not happen with this collector.

use crate::conformance::catalogue::{Test, exists};
use anyhow::{Context, ensure};
use std::collections::BTreeSet;
use std::path::Path;

use Test::{Case, Unit};

/// One incident.
#[derive(Debug, Clone, Copy)]
pub struct Scenario {
    pub id: &'static str,
    /// A condition that must hold, or that must not.
    pub about: &'static str,
    /// The tests that show it. The most relevant test is first.
    pub shown_by: &'static [Test],
}

/// The ids that must have an entry.
const REQUIRED: [&str; 29] = [
    "S01", "S03", "S04", "S05", "S08", "S09", "S11", "S12", "S14", "S15", "S19", "S20", "S22", "S23", "S24", "S26",
    "S27", "S28", "S29", "S30", "S31", "S33", "S35", "S41", "S43", "S48", "S50", "S52", "S54",
];

const STORIES: &str = "engine/src/leader/tests/stories.rs";
const PRESSURE: &str = "engine/src/leader/tests/pressure.rs";
const EVIDENCE: &str = "engine/src/leader/tests/evidence.rs";
const SESSIONS: &str = "engine/src/leader/tests/sessions.rs";
const SCALE: &str = "engine/src/leader/tests/scale.rs";
const REAL: &str = "tests/tests/scenarios.rs";
const FOLLOW: &str = "graph-service/src/ingest/follow/tests.rs";
const KNOWN: &str = "graph-service/src/ingest/known/tests.rs";
const SIMULATED: Test = Unit("tests/tests/sim.rs", "worlds_come_to_what_the_semantics_ask_for");

const fn scenario(id: &'static str, about: &'static str, shown_by: &'static [Test]) -> Scenario {
    Scenario { id, about, shown_by }
}

/// All incidents.
pub const SCENARIOS: &[Scenario] = &[
    scenario(
        "S01",
        "a server that restarts and answers 404, then 503 for its custom kinds costs no child, and the collector goes on by itself",
        &[
            Unit(REAL, "a_server_that_restarts_with_a_cold_handler_costs_no_child"),
            Unit("tests/tests/lies.rs", "no_answer_about_an_owner_but_a_list_without_it_costs_a_life"),
        ],
    ),
    scenario(
        "S03",
        "a backend that is down holds only what is owned there, with discovery naming it",
        &[
            Unit(REAL, "a_backend_that_is_down_holds_only_the_dependents_of_its_objects"),
            Unit(
                "graph-service/src/ingest/discovery/tests.rs",
                "a_server_that_is_down_or_missing_makes_its_group_suspect",
            ),
            Unit(KNOWN, "a_suspect_group_or_an_incomplete_view_takes_nothing_away"),
        ],
    ),
    scenario(
        "S04",
        "where only one of two servers knows a kind, no answer in turn is taken for absence; the watch is believed",
        &[Unit(STORIES, "a_server_that_does_not_know_the_kind_yet_causes_no_deletion")],
    ),
    scenario(
        "S05",
        "discovery that shrinks takes nothing out of the graph, and what was missed meanwhile is noticed when it is back",
        &[
            Unit(STORIES, "what_discovery_no_longer_shows_stays_in_the_graph_until_it_shows_it_again"),
            Unit(KNOWN, "four_hundred_kinds_that_come_back_as_none_and_as_fewer_are_still_four_hundred"),
            Unit("graph-service/src/ingest/discovery/tests.rs", "an_empty_document_is_no_view"),
        ],
    ),
    scenario(
        "S08",
        "a reference by a version that is not served any more keeps while its owner lives, and no longer",
        &[Unit(REAL, "a_version_that_is_no_longer_served_costs_no_life_and_leaves_nothing_behind")],
    ),
    scenario(
        "S09",
        "a proof against one uid says nothing of its successor of the same name",
        &[
            Unit(STORIES, "a_child_that_finds_the_successor_of_its_owner_outlives_the_proof_against_the_owner"),
            Case("owner-has-a-successor"),
        ],
    ),
    scenario(
        "S11",
        "a copy in another namespace goes alone, or is held, in every order of events and after a restart",
        &[
            Unit(STORIES, "a_copy_in_another_namespace_goes_alone_in_every_order_of_events"),
            Case("copied-reference-is-held"),
            Case("owner-elsewhere"),
        ],
    ),
    scenario(
        "S12",
        "a cluster-scoped dependent of a namespaced owner stays, whether the owner is there or not",
        &[
            Case("cluster-child"),
            Unit(STORIES, "a_cluster_scoped_dependent_of_a_namespaced_owner_stays_in_every_order_of_events"),
        ],
    ),
    scenario(
        "S14",
        "a hundred thousand references to kinds that never were cost no work and no words while nothing changes",
        &[Unit(STORIES, "a_hundred_thousand_references_to_kinds_that_never_were_cost_nothing_per_second")],
    ),
    scenario(
        "S15",
        "a reference into a stranger's namespace changes nothing there, and what becomes of it does not depend on what is there",
        &[Unit(
            STORIES,
            "a_reference_into_a_strangers_namespace_changes_nothing_there_and_comes_to_the_same_whatever_is_there",
        )],
    ),
    scenario(
        "S19",
        "a child that changes its owner lives at every interleaving with what the collector does",
        &[
            Unit(
                "engine/src/leader/tests/interleavings.rs",
                "a_child_that_changes_its_owner_lives_whatever_comes_first",
            ),
            Unit("executor-service/src/attempt/tests/deletes.rs", "what_the_second_look_shows_decides_a_conflict"),
            Case("references-change-under-way"),
        ],
    ),
    scenario(
        "S20",
        "dependents that are made while their owner orphans them live",
        &[
            Unit(REAL, "dependents_that_are_made_while_their_owner_orphans_them_all_live"),
            Unit(
                "engine/src/leader/tests/cascades.rs",
                "orphaning_takes_references_first_and_the_finalizer_after_the_barrier",
            ),
            Unit(
                "engine/src/leader/tests/races.rs",
                "a_late_dependent_of_an_owner_that_nothing_referred_to_is_found_by_the_second_round",
            ),
        ],
    ),
    scenario(
        "S22",
        "watch events that are lost, or come to an end by 410, end nothing for good",
        &[
            SIMULATED,
            Unit(FOLLOW, "an_expired_position_leads_to_a_new_list_wherever_it_shows"),
            Unit(EVIDENCE, "a_count_that_differs_twice_lists_the_collection_anew"),
        ],
    ),
    scenario(
        "S23",
        "what a server that lags shows again, or not yet, is not acted on until it has caught up",
        &[
            Unit(PRESSURE, "what_a_server_ten_minutes_behind_shows_again_or_not_yet_is_not_acted_on"),
            Unit(EVIDENCE, "a_store_that_stands_before_what_was_seen_is_a_rewind"),
            // A restart learns the state from a list that is consistent by itself.
            Unit(FOLLOW, "a_watch_list_goes_on_as_a_watch"),
        ],
    ),
    scenario(
        "S24",
        "a store that was restored, with its revisions raised or not, voids what rested on the old history",
        &[
            Unit(PRESSURE, "a_backup_whose_revisions_were_raised_is_another_history_too"),
            Unit(EVIDENCE, "a_store_that_goes_back_voids_every_proof"),
            Unit(EVIDENCE, "with_hold_a_store_that_went_back_stops_everything_until_the_process_starts_anew"),
        ],
    ),
    scenario(
        "S26",
        "no deadline and no decision rests on the time of day",
        &[
            Unit("tests/tests/tidy/main.rs", "the_time_of_day_is_only_ever_written_down"),
            Unit("graph-service/src/election/lease/tests.rs", "the_clock_of_another_holder_does_not_matter"),
            Unit("engine/src/elector/tests.rs", "takes_a_lease_that_stood_still_for_its_duration_on_our_clock"),
            Unit(
                "graph-service/src/guards/resource/tests.rs",
                "the_calendar_of_the_api_server_counts_only_for_a_guard_that_was_found",
            ),
        ],
    ),
    scenario(
        "S27",
        "of two leaders, executors follow the newer one, and hand back what the older one grants",
        &[
            Unit("engine/src/session/tests.rs", "a_newer_term_voids_what_an_older_one_granted"),
            Unit("engine/src/elector/tests/random.rs", "there_are_never_two_leaders_and_terms_grow"),
            SIMULATED,
        ],
    ),
    scenario(
        "S28",
        "an executor that dies half-way leaves nothing undone, and nothing is done to a namesake",
        &[
            Unit(PRESSURE, "an_executor_that_dies_half_way_leaves_nothing_undone_and_touches_no_namesake"),
            Unit("tests/tests/e2e.rs", "killing_either_service_half_way_loses_nothing_and_touches_no_other_object"),
        ],
    ),
    scenario(
        "S29",
        "whatever crashes at whatever step, the end is the same",
        &[
            SIMULATED,
            Unit("tests/tests/e2e.rs", "killing_either_service_half_way_loses_nothing_and_touches_no_other_object"),
        ],
    ),
    scenario(
        "S30",
        "a conversion webhook that is down at the start holds what might be behind it, and says so",
        &[
            Unit("tests/tests/isolation.rs", "a_broken_conversion_webhook_holds_only_what_might_be_behind_it"),
            Case("broken-kind"),
            Case("unseen-collection-is-assumed-empty"),
        ],
    ),
    scenario(
        "S31",
        "a list that became forbidden is told of while the watch still goes on, and holds no other kind after a restart",
        &[
            Unit(EVIDENCE, "a_list_that_fails_although_the_watch_goes_on_is_told_of_before_a_restart_meets_it"),
            Unit("tests/tests/bad_input.rs", "one_resource_that_cannot_be_listed_does_not_stop_the_others"),
        ],
    ),
    scenario(
        "S33",
        "a kind whose list takes very long delays no other kind, and a page that fails does not throw away the others",
        &[
            Unit(PRESSURE, "a_kind_whose_list_takes_a_quarter_of_an_hour_delays_no_other_kind"),
            Unit(FOLLOW, "a_page_that_fails_is_asked_for_again_and_what_came_before_it_is_kept"),
            Unit(FOLLOW, "a_list_that_the_server_cuts_short_is_given_more_time"),
        ],
    ),
    scenario(
        "S35",
        "a webhook that denies for an hour is asked now and then, and everything goes within seconds once it allows",
        &[Unit(PRESSURE, "a_webhook_that_denies_for_an_hour_is_asked_now_and_then_and_all_go_once_it_allows")],
    ),
    scenario(
        "S41",
        "a pause in mid-cascade lets no deletion leave an executor a second later, and ends without a loss",
        &[
            Unit(
                "tests/tests/pause.rs",
                "pressed_in_mid_cascade_it_holds_within_a_second_and_resumed_the_cascade_finishes",
            ),
            Unit("tests/tests/pause.rs", "it_survives_the_death_of_the_leader_and_works_while_no_replica_leads"),
            Unit("engine/src/leader/tests/pauses.rs", "a_pause_in_mid_cascade_stops_what_is_leased_and_holds_the_rest"),
        ],
    ),
    scenario(
        "S43",
        "a child that is made again and again under a terminating owner costs one deletion each",
        &[Unit(PRESSURE, "a_child_that_is_made_again_every_second_costs_one_deletion_each")],
    ),
    scenario(
        "S48",
        "very many dependents and very long chains are worked off at a steady rate, a window at a time",
        &[
            Unit(SCALE, "one_owner_of_very_many_is_worked_off_a_window_at_a_time"),
            Unit(SCALE, "a_chain_of_ten_thousand_ends_without_recursion"),
        ],
    ),
    scenario(
        "S50",
        "a server that pushes back is left alone for as long as it asks, while others go on",
        &[
            Unit(PRESSURE, "a_server_that_pushes_back_is_left_alone_for_as_long_as_it_asks_and_others_go_on"),
            Unit(SESSIONS, "failures_wait_each_in_their_own_way"),
        ],
    ),
    scenario(
        "S52",
        "beside upstream's collector, both at work, everything ends as with one of them",
        &[Unit(REAL, "two_collectors_at_once_end_where_each_of_them_would")],
    ),
    scenario(
        "S54",
        "an API server and its store are enough: each policy ends as with upstream, in well under a second",
        &[Unit(REAL, "an_api_server_and_its_store_are_enough_and_each_policy_ends_as_with_upstream")],
    ),
];

/// Fails on an id that is missing, unknown or present twice, and on a test that does not exist. `root` is the top of
/// the source tree.
pub fn check(root: &Path) -> anyhow::Result<()> {
    let mut ids = BTreeSet::new();
    for scenario in SCENARIOS {
        let id = scenario.id;
        ensure!(ids.insert(id), "{id} is there twice");
        ensure!(!scenario.about.is_empty() && !scenario.shown_by.is_empty(), "{id} is shown by nothing");
        for test in scenario.shown_by {
            ensure!(exists(root, test).with_context(|| format!("looking for what shows {id}"))?, "{id}: no {test:?}");
        }
    }
    let required = BTreeSet::from(REQUIRED);
    let missing: Vec<&&str> = required.difference(&ids).collect();
    let unknown: Vec<&&str> = ids.difference(&required).collect();
    ensure!(missing.is_empty() && unknown.is_empty(), "missing: {missing:?}, unknown: {unknown:?}");
    Ok(())
}
