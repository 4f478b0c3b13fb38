//! Two stores behind one address, at the same positions. The other store lacks some of the owners. This module chooses
//! the store that answers each request.

use super::answer::Form;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The number of owners of each row. The other store lacks every second one.
pub(super) const OWNERS: usize = 8;
/// The time for which the lists and watches of [`Row::RefusedAtFirst`] fail.
const AT_FIRST: Duration = Duration::from_secs(3);

/// The distribution of the requests for one kind. Questions are requests about one owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Row {
    /// The other store answers every second request.
    Alternating,
    /// The other store answers lists and watches, and every second question.
    ListsElsewhere,
    /// Lists and watches fail. The other store answers every second question.
    ListsFail,
    /// Lists and watches fail at first. The other store answers questions.
    RefusedAtFirst,
    /// The other store answers every second list or watch. The right store answers questions.
    EverySecondList,
    /// The other store answers lists and watches. The right store answers questions.
    OnlyListsElsewhere,
}

impl Row {
    pub const ALL: [Row; 6] = [
        Row::Alternating,
        Row::ListsElsewhere,
        Row::ListsFail,
        Row::RefusedAtFirst,
        Row::EverySecondList,
        Row::OnlyListsElsewhere,
    ];
}

/// The store that answers a request. `Refuses` means that the proxy refuses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Member {
    Right,
    Other,
    Refuses,
}

/// The number of requests of each row so far.
#[derive(Debug, Default)]
pub(super) struct Turns {
    rows: Mutex<HashMap<Row, Turn>>,
}

#[derive(Debug)]
struct Turn {
    since: Instant,
    requests: usize,
    lists: usize,
    questions: usize,
}

impl Turns {
    /// Returns the store for the next request of a row. The request is about one owner or about the collection.
    pub(super) fn next(&self, row: Row, form: Form, names_owner: bool) -> Member {
        let mut rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        let begun = || Turn { since: Instant::now(), requests: 0, lists: 0, questions: 0 };
        let turns = rows.entry(row).or_insert_with(begun);
        if form == Form::Resources {
            return Member::Right;
        }
        turns.requests += 1;
        *(if names_owner { &mut turns.questions } else { &mut turns.lists }) += 1;
        let second = |turns: usize| if turns.is_multiple_of(2) { Member::Other } else { Member::Right };
        match (row, names_owner) {
            (Row::Alternating, _) => second(turns.requests),
            (Row::ListsElsewhere | Row::ListsFail, true) => second(turns.questions),
            (Row::ListsElsewhere | Row::OnlyListsElsewhere, false) | (Row::RefusedAtFirst, true) => Member::Other,
            (Row::ListsFail, false) => Member::Refuses,
            (Row::RefusedAtFirst, false) if turns.since.elapsed() < AT_FIRST => Member::Refuses,
            (Row::EverySecondList, false) => second(turns.lists),
            (Row::RefusedAtFirst, false) | (Row::EverySecondList | Row::OnlyListsElsewhere, true) => Member::Right,
        }
    }
}
