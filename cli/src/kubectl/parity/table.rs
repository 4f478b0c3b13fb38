//! The report as text.

use super::report::{Report, classes, collections, facts, grouped_noun, headlines, is_empty, owner, sides};
use crate::kubectl::columns::{Cell, Widths, columns, span};
use crate::kubectl::decisions::record::class_word;
use crate::kubectl::naming::shown;
use crate::name::command_here;
use proto::decision::v1beta1::DecisionEvent;
use proto::decision::v1beta1::disagreement::Class;
use runtime::visible;
use std::fmt::Write as _;

/// Maximum number of rows of a table, unless all are wanted.
pub(super) const SHORT: usize = 20;
const OWNERS: usize = 2;

/// The report, with at most this number of rows for each table.
pub(super) fn text(report: &Report, rows_max: usize, headings: bool) -> String {
    let mut text = String::new();
    if !is_empty(&report.numbers) {
        let rows = headlines(&report.numbers).map(|headline| {
            let value = format!("{} {}", headline.value, headline.word);
            let value = if headline.is_good == Some(false) { Cell::alarming(value) } else { Cell::bold(value) };
            vec![value, Cell::plain(format!("({})", headline.meaning))]
        });
        let mut widths = Widths::default();
        rows.iter().for_each(|row| widths.widen(row));
        text.extend(rows.iter().map(|row| widths.row(row)));
        text.push('\n');
    }
    for (name, what) in facts(report) {
        // Writing to a string does not fail.
        let _infallible = writeln!(text, "{name:<13} {}", visible::line(&what));
    }
    let mut table = |heads: &[&str], rows: Vec<Vec<Cell>>, more: &str| {
        if rows.is_empty() {
            return;
        }
        let shown = columns(heads, &rows[..rows.len().min(rows_max)]);
        let shown = if headings { shown.as_str() } else { shown.split_once('\n').map_or("", |(_, rows)| rows) };
        let _infallible = write!(text, "\n{shown}");
        let left = rows.len().saturating_sub(rows_max);
        if left > 0 {
            let (left, command) = (grouped_noun(left as u64, more), command_here());
            let _infallible = writeln!(text, "and {left} more: {command} parity{} -o wide", report.flags);
        }
    };
    let plain = |row: &[String]| row.iter().map(Cell::plain).collect();
    let rows = classes(&report.numbers).iter().map(|row| plain(row)).collect();
    table(&["CLASS", "OURS ONLY", "THEIRS ONLY", "MEANING"], rows, "class");
    let rows = collections(&report.numbers).iter().map(|row| plain(row)).collect();
    table(&["COLLECTION", "AGREED", "OURS ONLY", "THEIRS ONLY", "UNKNOWN", "UNATTRIBUTED"], rows, "collection");
    let rows = report.disagreements.iter().map(|event| cells(event, report.now)).collect();
    table(&["SINCE", "NAME", "OURS", "THEIRS", "CLASS", "OWNERS", "USER"], rows, "disagreement");
    if !report.narrowed.is_empty() {
        let count = grouped_noun(report.disagreements.len() as u64, "disagreement");
        let narrowed = visible::line(&report.narrowed);
        let _infallible = writeln!(text, "\n{count} {narrowed}; the numbers above are those of the whole cluster");
    }
    text
}

fn cells(event: &DecisionEvent, now: i64) -> Vec<Cell> {
    let found = event.disagreement.clone().unwrap_or_default();
    let [ours, theirs] = sides(event);
    let class = class_word(found.class());
    let mut owners: Vec<String> = event.owners.iter().take(OWNERS).map(owner).collect();
    let more = usize::try_from(event.owner_count).unwrap_or(usize::MAX).saturating_sub(owners.len());
    owners.extend((more > 0).then(|| format!("and {more} more")));
    vec![
        Cell::plain(event.event_time.map(|at| span(now.saturating_sub(at.seconds))).unwrap_or_default()),
        Cell::bold(event.target.as_ref().map(shown).unwrap_or_default()),
        Cell::plain(ours),
        Cell::plain(theirs),
        if found.class() == Class::Unknown { Cell::alarming(class) } else { Cell::plain(class) },
        Cell::plain(owners.join(", ")),
        Cell::plain(found.user),
    ]
}
