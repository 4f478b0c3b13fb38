//! Two stores behind one address, at the same positions, one of which lacks some of the owners: which of them answers what.

use super::answer::Form;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Owners of each row; the other store lacks every second one.
pub(super) const OWNERS: usize = 8;
/// For so long the lists of [`Row::RefusedAtFirst`] fail.
const AT_FIRST: Duration = Duration::from_secs(3);

/// What one kind's requests are answered by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Row {
    /// Every second request by the other store.
    Alternating,
    /// Lists and watches by the other store, every second question for one owner too.
    ListsElsewhere,
    /// Lists and watches fail, every second question is answered by the other store.
    ListsFail,
    /// Lists and watches fail for a moment; questions are answered by the other store.
    RefusedAtFirst,
    /// Every second list or watch by the other store, questions by the right one.
    EverySecondList,
    /// Lists and watches by the other store, questions by the right one.
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

/// The component that answers a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Member {
    Right,
    Other,
    Refuses,
}

/// The progress of each row.
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
    /// Who answers the next request of a row: for one owner, or for the collection.
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
