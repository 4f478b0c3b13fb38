//! The bounds of the API in one table, each with the test that reaches it.

/// The bounded resource, its limit, and the name of the test.
pub(super) const BOUNDS: [(&str, &str, &str); 26] = [
    (
        "One event of the log",
        "256 KiB; `reasons` and `owners` the first 20, `cause_chain` 32, all with counts",
        "no_event_and_no_message_of_a_stream_is_larger_than_is_promised",
    ),
    (
        "What is left of an event that JetStream does not take",
        "4 KiB",
        "an_event_that_the_log_does_not_take_whole_is_written_in_short",
    ),
    (
        "One message of WatchDecisions",
        "1 MiB; 64 events if not asked otherwise, 256 at most",
        "a_message_has_as_many_events_as_were_asked_for_and_at_most_256",
    ),
    (
        "What is open, at the beginning of a stream",
        "messages of 1 MiB",
        "what_is_open_is_sent_in_parts_no_larger_than_is_promised",
    ),
    ("Time between bookmarks of a quiet stream", "1 s to 60 s", "bookmarks_come_every_one_to_sixty_seconds"),
    (
        "One page of ListDecisions",
        "1 MiB; 100 events if not asked otherwise, 1000 at most",
        "a_page_has_as_many_events_as_were_asked_for_and_at_most_1000",
    ),
    ("Positions that one page of ListDecisions looks at", "65,536", "a_page_looks_at_65536_positions"),
    (
        "One answer of GetDecision",
        "1 MiB and 1000 phases",
        "a_decision_with_many_phases_is_told_in_parts_that_fit_together",
    ),
    ("Events in memory", "65,536, and 64 MiB", "what_is_kept_in_memory_is_bounded_in_bytes"),
    ("Conditions of a filter", "1000, and 16 expressions of 1024 bytes each", "filters_have_a_bound"),
    (
        "A name, uid or version in an answer or an event",
        "320 bytes; a sentence 1024 bytes; what is longer is cut",
        "long_texts_are_cut_wherever_they_are_told",
    ),
    (
        "One page of GraphService",
        "1 MiB; 100 entries if not asked otherwise, 1000 at most",
        "an_object_with_thousands_of_references_makes_no_large_answer",
    ),
    (
        "References and finalizers of a Node, edges of an entry, members and edges of a Cycle",
        "the first 100, with a count",
        "a_large_cycle_is_told_in_part_with_its_size",
    ),
    (
        "BatchGetObjects",
        "At most 500 objects and 512 KiB in a request. An answer has at most 1 MiB; the remaining objects are in `not_answered`.",
        "what_does_not_fit_into_an_answer_is_named_and_asked_for_again",
    ),
    ("A uid in a request", "1024 bytes", "a_request_is_bounded_in_bytes"),
    ("Targets of a preview, and objects assumed gone", "100 each", "a_request_is_bounded_in_bytes"),
    (
        "What is kept for the next page",
        "five minutes; 16 answers of one caller",
        "a_caller_who_asks_for_many_first_pages_takes_none_from_others",
    ),
    (
        "Bytes that are kept for next pages",
        "64 MiB for one caller, 128 MiB for all",
        "answers_are_bounded_in_bytes_and_who_has_most_makes_room",
    ),
    ("Objects of one message of WatchDependents", "500, and 512 KiB", "large_sets_come_in_messages_of_a_bounded_size"),
    (
        "A message that the reader of a stream does not take",
        "60 s, then the stream ends; one message is kept for each reader",
        "who_is_too_far_behind_begins_anew_and_who_does_not_read_is_sent_away",
    ),
    (
        "Streams that follow something",
        "16 of one caller, 224 of all callers without the right for all namespaces, 256 of all",
        "a_tenant_takes_no_place_of_another_and_none_of_the_auditor",
    ),
    (
        "Processor time and bytes of one caller's streams",
        "a caller that uses up its share waits, and no other does",
        "a_reader_that_uses_up_its_time_or_its_bytes_waits_alone",
    ),
    (
        "Bytes of all readers' streams together",
        "96 MiB in a second for each processor of the service; then all wait for a moment",
        "all_readers_together_leave_the_collector_its_processors",
    ),
    (
        "Other calls at a time",
        "256 of each service; an answer takes at most 30 s",
        "calls_beyond_the_bound_are_refused_at_once_and_slow_ones_in_time_but_for_pauses",
    ),
    (
        "Bundles at a time",
        "one of each replica, in messages of 256 KiB, within half an hour",
        "a_second_export_is_refused_until_the_first_one_has_ended",
    ),
    (
        "References of an object that the collector looks at",
        "5000, and 512 KiB; an object with more is kept",
        "an_object_with_too_many_references_is_kept_and_said_to_be",
    ),
];
