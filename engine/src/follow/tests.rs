//! The machine with text scripts, and with a server that answers randomly.

use super::*;
use alloc::string::ToString;
use alloc::vec::Vec;

mod random;

fn at(seconds: u64) -> Time {
    Time::from_origin(Duration::from_secs(seconds))
}

fn version(number: u64) -> ResourceVersion {
    ResourceVersion::parse(&number.to_string())
}

fn config(paged: bool) -> Config {
    Config { name: "things".to_string(), page_size: 2, paged, seed: 7 }
}

fn word(output: &Output) -> String {
    match output {
        Output::Ask(Ask::Nothing) => "rest".to_string(),
        Output::Ask(Ask::Page { limit, token }) => format!(
            "page {} {}",
            limit.map_or("all".to_string(), |limit| limit.to_string()),
            token.as_deref().unwrap_or("first")
        ),
        Output::Ask(Ask::WatchList { .. }) => "watch-list".to_string(),
        Output::Ask(Ask::Watch { position, .. }) => format!("watch {position}"),
        Output::Objects => "objects".to_string(),
        Output::Tell(Tell::ListBegun) => "begun".to_string(),
        Output::Tell(Tell::ListEnded(position)) => format!("ended {position}"),
        Output::Tell(Tell::ListFailed(failure)) => format!("failed: {}", failure.sentence),
        Output::Tell(Tell::Bookmark(position)) => format!("bookmark {position}"),
        Output::Tell(Tell::WatchLost(end, failure)) => format!("lost {end:?}: {}", failure.sentence),
        Output::Tell(Tell::WatchResumed) => "resumed".to_string(),
        Output::Tell(Tell::ListsAnew(why)) => format!("anew: {why}"),
    }
}

const EARLY: &str = "lost Early: watch things: the API server ended it early";

struct Bench {
    follow: Follow,
    now: Time,
}

impl Bench {
    fn new(paged: bool) -> Bench {
        Bench { follow: Follow::new(at(100), config(paged)), now: at(100) }
    }

    /// A collection that is listed up to version 10, and watched.
    fn watching() -> Bench {
        let mut bench = Bench::new(false);
        bench.words();
        bench.says(Input::Opened);
        bench.says(Input::Bookmark { position: version(10), ends_list: true });
        bench
    }

    fn words(&mut self) -> Vec<String> {
        core::iter::from_fn(|| self.follow.poll()).map(|output| word(&output)).collect()
    }

    fn says(&mut self, input: Input) -> Vec<String> {
        self.follow.handle(self.now, input);
        self.words()
    }

    fn fails(&mut self, status: impl Into<Option<u16>>) -> Vec<String> {
        let status = status.into();
        let sentence = status.map_or("cut".to_string(), |status| status.to_string());
        self.says(Input::Failed(Failure { sentence, status, retry_after: None }))
    }

    fn page(&mut self, position: u64, token: &str) -> Vec<String> {
        let token = (!token.is_empty()).then(|| token.to_string());
        self.says(Input::Page { position: Some(version(position)), token })
    }

    /// Waits for the next deadline. Returns the duration and the effects.
    fn waits(&mut self) -> (Duration, Vec<String>) {
        let due = self.follow.next_deadline().expect("a deadline");
        let took = due.since(self.now);
        self.now = self.now.max(due);
        self.follow.tick(self.now);
        (took, self.words())
    }
}

#[test]
fn a_watch_list_goes_on_as_a_watch() {
    let mut bench = Bench::new(false);
    assert_eq!(bench.words(), ["begun", "watch-list"]);
    assert!(bench.follow.is_listing());
    assert_eq!(bench.says(Input::Opened), [""; 0]);
    assert_eq!(bench.follow.pass(false, Some(version(5))), Pass::Listed);
    assert_eq!(bench.follow.pass(true, Some(version(8))), Pass::Deleted, "the watch may run already");
    assert_eq!(bench.says(Input::Bookmark { position: version(10), ends_list: true }), ["ended 10"]);
    assert!(!bench.follow.is_listing());
    assert_eq!(bench.follow.pass(false, Some(version(11))), Pass::Seen);
    assert_eq!(bench.follow.pass(true, Some(version(12))), Pass::Deleted);
    bench.now = bench.now + Duration::from_secs(5);
    assert_eq!(bench.says(Input::Ended), [EARLY, "watch 12"]);
}

#[test]
fn an_end_before_its_time_is_told_of_and_one_in_time_is_not() {
    let mut bench = Bench::watching();
    bench.follow.pass(false, Some(version(11)));
    bench.now = bench.now + Duration::from_secs(5);
    assert_eq!(bench.says(Input::Ended), [EARLY, "watch 11"]);
    assert_eq!(bench.says(Input::Opened), ["resumed"]);
    assert_eq!(bench.says(Input::Ended), [EARLY, "rest"], "one that brought nothing is not begun anew at once");
    let (took, words) = bench.waits();
    assert!(took <= BACKOFF_MAX, "{took:?}");
    assert_eq!(words, ["watch 11"]);
    for (early, told) in [(10, true), (3, true), (2, false), (1, false), (0, false)] {
        let mut bench = Bench::watching();
        bench.follow.pass(false, Some(version(11)));
        bench.now = bench.now + Duration::from_secs(5);
        bench.follow.handle(bench.now, Input::Ended);
        let asked: Vec<Output> = core::iter::from_fn(|| bench.follow.poll()).collect();
        let Some(Output::Ask(Ask::Watch { seconds, .. })) = asked.last() else { panic!("{asked:?}") };
        bench.says(Input::Opened);
        bench.follow.pass(false, Some(version(12)));
        bench.now = bench.now + Duration::from_secs(seconds - early);
        let words = bench.says(Input::Ended);
        assert_eq!(words.contains(&EARLY.to_string()), told, "{early} s before its time");
    }
}

#[test]
fn watches_that_end_at_once_with_one_event_each_come_ever_more_seldom() {
    let mut bench = Bench::watching();
    let began = bench.now;
    for streams in 0..10 {
        bench.follow.pass(false, Some(version(11 + streams)));
        bench.now = bench.now + Duration::from_millis(10);
        assert_eq!(bench.says(Input::Ended), [EARLY, "rest"]);
        assert_eq!(bench.waits().1, [format!("watch {}", 11 + streams)]);
        assert_eq!(bench.says(Input::Opened), ["resumed"]);
    }
    assert!(bench.now.since(began) > BACKOFF_MAX, "{:?}", bench.now.since(began));
}

#[test]
fn pages_follow_each_other_and_a_watch_begins_where_the_first_was() {
    let mut bench = Bench::new(true);
    assert_eq!(bench.words(), ["begun", "page 2 first"]);
    assert_eq!(bench.page(10, "a"), ["objects", "page 2 a"]);
    assert_eq!(bench.page(11, "b"), ["objects", "page 2 b"]);
    assert_eq!(bench.page(12, ""), ["objects", "ended 10", "watch 10"]);
    assert_eq!(bench.says(Input::Opened), [""; 0]);
}

#[test]
fn a_server_without_watch_lists_is_asked_for_pages_from_then_on() {
    for status in [400, 405, 406, 422] {
        let mut bench = Bench::new(false);
        bench.words();
        assert_eq!(bench.fails(status), ["page 2 first"]);
        assert!(bench.follow.is_paged());
    }
    let mut bench = Bench::new(false);
    bench.words();
    bench.says(Input::Opened);
    bench.follow.pass(false, Some(version(5)));
    let plain = Input::Bookmark { position: version(9), ends_list: false };
    assert_eq!(bench.says(plain), ["page 2 first"], "a plain bookmark before the end");
    assert_eq!(bench.page(10, ""), ["begun", "objects", "ended 10", "watch 10"], "what was shown is shown anew");
    let mut bench = Bench::new(false);
    bench.words();
    bench.says(Input::Opened);
    bench.follow.waits(bench.now);
    assert_eq!(bench.waits(), (INITIAL_SILENCE_MAX, ["page 2 first".to_string()].to_vec()));
}

#[test]
fn a_page_that_fails_is_asked_for_again_and_then_the_list_begins_anew() {
    let mut bench = Bench::new(true);
    bench.words();
    bench.page(10, "a");
    for _ in 0..4 {
        assert_eq!(bench.fails(500), ["rest"]);
        let (took, words) = bench.waits();
        assert!(took <= RESUME_BACKOFF_MAX, "{took:?}");
        assert_eq!(words, ["page 2 a"]);
    }
    assert_eq!(bench.fails(500), ["failed: 500", "rest"]);
    let (took, words) = bench.waits();
    assert!(took <= BACKOFF_MAX, "{took:?}");
    assert_eq!(words, ["page 2 first"], "from the beginning, and not yet told of");
    assert_eq!(bench.page(20, ""), ["begun", "objects", "ended 20", "watch 20"]);
    for hopeless in [401, 403, 404] {
        let mut bench = Bench::new(true);
        bench.words();
        bench.page(10, "a");
        assert_eq!(bench.fails(hopeless), [format!("failed: {hopeless}"), "rest".to_string()]);
    }
}

#[test]
fn an_expired_token_leads_to_one_list_without_pages() {
    let mut bench = Bench::new(true);
    bench.words();
    bench.page(10, "a");
    assert_eq!(bench.fails(410), ["page all first"]);
    assert_eq!(bench.page(12, ""), ["begun", "objects", "ended 12", "watch 12"]);
}

#[test]
fn a_page_that_makes_no_sense_fails_the_list() {
    let mut bench = Bench::new(true);
    bench.words();
    let unversioned = bench.says(Input::Page { position: None, token: None });
    assert_eq!(
        unversioned,
        ["failed: list things: the answer has no resourceVersion, so it cannot be watched", "rest"]
    );
    bench.waits();
    bench.fails(410);
    let cut = bench.page(10, "a");
    let why = "failed: list things: the answer is incomplete although no limit was requested";
    assert_eq!(cut, ["begun", "objects", why, "rest"]);
}

#[test]
fn a_list_that_the_server_cuts_short_is_given_more_time() {
    let mut bench = Bench::new(false);
    for number in 0..8 {
        let asked: Vec<Output> = core::iter::from_fn(|| bench.follow.poll()).collect();
        let Some(Output::Ask(Ask::WatchList { seconds })) = asked.last() else { panic!("{asked:?}") };
        let most = (2 * WATCH_FOR_UNMARKED_S) << number.min(LONGER_LISTS_MAX);
        assert!((most / 2..most).contains(seconds), "{number}: {seconds}");
        bench.follow.handle(bench.now, Input::Opened);
        bench.follow.handle(bench.now, Input::Ended);
        bench.words();
        bench.now = bench.follow.next_deadline().expect("a rest");
        bench.follow.tick(bench.now);
    }
}

#[test]
fn after_three_watch_lists_without_a_readable_bookmark_the_list_is_read_in_pages() {
    let ends = [Input::Ended, Input::Failed(Failure::senseless("a bookmark without a version".to_string()))];
    for end in ends {
        let mut bench = Bench::new(false);
        for _ in 0..WATCH_LISTS_UNMARKED_MAX {
            let asked: Vec<Output> = core::iter::from_fn(|| bench.follow.poll()).collect();
            let Some(Output::Ask(Ask::WatchList { seconds })) = asked.last() else { panic!("{end:?}: {asked:?}") };
            bench.follow.handle(bench.now, Input::Opened);
            // The collection changes each second, so the stream is never silent.
            for _ in 0..*seconds {
                bench.now = bench.now + Duration::from_secs(1);
                bench.follow.tick(bench.now);
                assert_eq!(bench.follow.pass(false, Some(version(1))), Pass::Listed);
                bench.follow.waits(bench.now);
            }
            bench.follow.handle(bench.now, end.clone());
            bench.words();
            bench.now = bench.follow.next_deadline().expect("a rest");
            bench.follow.tick(bench.now);
        }
        let asked: Vec<Output> = core::iter::from_fn(|| bench.follow.poll()).collect();
        assert!(matches!(asked.last(), Some(Output::Ask(Ask::Page { .. }))), "{end:?}: {asked:?}");
        assert!(bench.follow.is_paged());
    }
}

#[test]
fn a_list_that_ends_before_its_time_is_doubt() {
    for (early, is_doubt) in [(10, true), (3, true), (2, false), (0, false)] {
        let mut bench = Bench::new(false);
        let asked: Vec<Output> = core::iter::from_fn(|| bench.follow.poll()).collect();
        let Some(Output::Ask(Ask::WatchList { seconds })) = asked.last() else { panic!("{asked:?}") };
        bench.says(Input::Opened);
        bench.now = bench.now + Duration::from_secs(seconds - early);
        bench.follow.handle(bench.now, Input::Ended);
        let told = core::iter::from_fn(|| bench.follow.poll()).find_map(|output| {
            let Output::Tell(Tell::ListFailed(failure)) = output else { return None };
            Some(failure.is_transport())
        });
        assert_eq!(told, Some(is_doubt), "{early} s before its time");
    }
}

#[test]
fn a_lost_watch_is_told_once_and_goes_on_where_it_was() {
    let mut bench = Bench::watching();
    bench.follow.pass(false, Some(version(11)));
    assert_eq!(bench.fails(None), ["lost Transport: cut", "rest"]);
    assert_eq!(bench.waits().1, ["watch 11"]);
    assert_eq!(bench.fails(None), ["rest"], "the same again is no news");
    assert_eq!(bench.waits().1, ["watch 11"]);
    assert_eq!(bench.fails(503), ["lost Refused: 503", "rest"]);
    assert_eq!(bench.waits().1, ["watch 11"]);
    assert_eq!(bench.says(Input::Opened), ["resumed"]);
}

#[test]
fn an_expired_position_leads_to_a_new_list() {
    let mut bench = Bench::watching();
    bench.follow.pass(false, Some(version(11)));
    assert_eq!(bench.fails(410), ["lost Expired: 410", "anew: 410", "begun", "watch-list"]);
    let mut bench = Bench::watching();
    bench.fails(None);
    bench.waits();
    let words = bench.fails(410);
    assert_eq!(words, ["lost Expired: 410", "anew: 410", "rest"], "nothing came, so it waits");
    assert_eq!(bench.waits().1, ["begun", "watch-list"]);
}

#[test]
fn three_watches_that_bring_failures_alone_lead_to_a_new_list_where_one_may_help() {
    let mut bench = Bench::watching();
    for _ in 0..2 {
        bench.fails(500);
        bench.waits();
    }
    assert!(bench.fails(500).contains(&"anew: 500".to_string()));
    for helpless in [None, Some(401), Some(403), Some(404), Some(429), Some(502), Some(503), Some(504)] {
        let mut bench = Bench::watching();
        for _ in 0..20 {
            bench.fails(helpless);
            let (took, words) = bench.waits();
            assert!(took <= RESUME_BACKOFF_MAX, "{took:?}");
            assert_eq!(words, ["watch 10"]);
        }
    }
}

#[test]
fn a_silent_watch_is_given_up_and_one_that_waits_for_the_leader_is_not() {
    let mut bench = Bench::watching();
    bench.follow.waits(bench.now);
    let (took, words) = bench.waits();
    assert_eq!(took, SILENCE_MAX);
    assert_eq!(words, ["lost Transport: watch things: nothing for 150 s, not even a bookmark", "rest"]);
    let mut bench = Bench::watching();
    bench.now = at(1_000);
    bench.follow.pass(false, Some(version(11)));
    bench.follow.waits(bench.now);
    bench.follow.tick(bench.now);
    assert_eq!(bench.words(), [""; 0], "the leader took that long to take the last event");
    assert_eq!(bench.waits().0, SILENCE_MAX);
}

#[test]
fn what_the_shell_cannot_use_leads_to_a_new_list() {
    let mut bench = Bench::watching();
    bench.follow.pass(true, Some(version(11)));
    let why = "a DELETED named no object".to_string();
    assert_eq!(bench.says(Input::Unusable(why)), ["anew: a DELETED named no object", "begun", "watch-list"]);
    let mut bench = Bench::new(false);
    bench.words();
    bench.says(Input::Opened);
    assert_eq!(bench.says(Input::Unusable("what".to_string())), ["failed: what", "rest"]);
    assert_eq!(bench.says(Input::Unusable("what".to_string())), [""; 0], "nothing is open");
    let mut bench = Bench::new(true);
    bench.words();
    let last = Input::Page { position: Some(version(10)), token: None };
    bench.follow.handle(bench.now, last);
    assert_eq!(bench.says(Input::Unusable("what".to_string())), ["anew: what", "rest"], "the list has not ended");
}

#[test]
fn the_wait_that_a_server_asks_for_is_kept() {
    let mut bench = Bench::new(true);
    bench.words();
    let busy = Failure { sentence: "busy".to_string(), status: Some(429), retry_after: Some(Duration::from_secs(40)) };
    bench.says(Input::Failed(busy));
    assert_eq!(bench.waits().0, Duration::from_secs(40));
}
