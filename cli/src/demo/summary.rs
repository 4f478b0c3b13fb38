//! The result of the demo, as text and as JSON.

use crate::counted::grouped;
use serde::Serialize;
use std::io::{self, Write};

/// The whole demo as one document. Names and meanings of the fields are stable.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Summary {
    /// Every object to collect is gone, and every other object remains with exactly the expected references.
    pub(super) verified: bool,
    /// The reasons for `verified: false`, one sentence each.
    pub(super) problems: Vec<String>,
    pub(super) executors: u32,
    /// Objects that the demo created.
    pub(super) built: usize,
    /// Owners that the demo deleted.
    pub(super) deleted: usize,
    /// Objects that the collector deleted.
    pub(super) collected: usize,
    /// Objects that the collector took references from.
    pub(super) changed: usize,
    /// Objects that are left.
    pub(super) kept: usize,
    /// Requests for single objects, counted at the API server: DELETE, PATCH, and the reads before them. The demo's own
    /// requests are excluded.
    pub(super) requests: u64,
    /// `requests` divided by the number of objects collected or changed.
    pub(super) requests_per_object: f64,
    /// Lists since the first deletion. One list proves absence, or orders events, for any number of objects.
    pub(super) lists: u64,
    /// Objects collected per second in the big cascade.
    pub(super) objects_per_second: f64,
    /// Time from the start of the process to this document.
    pub(super) seconds: f64,
    pub(super) acts: Vec<ActSummary>,
    pub(super) kept_because: Vec<Kept>,
}

/// One deletion and what followed.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ActSummary {
    pub(super) name: &'static str,
    pub(super) deleted: usize,
    pub(super) collected: usize,
    pub(super) changed: usize,
    pub(super) requests: u64,
    pub(super) requests_per_object: f64,
    /// Time from the first deletion to the last consequence.
    pub(super) seconds: f64,
    pub(super) objects_per_second: f64,
}

impl ActSummary {
    /// Objects that the collector deleted or changed.
    pub(super) fn handled(&self) -> usize {
        self.collected + self.changed
    }
}

/// Objects that are left for the same reason.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Kept {
    pub(super) count: usize,
    /// The names of the first few objects.
    pub(super) objects: Vec<String>,
    pub(super) why: String,
}

/// `number` divided by `per`.
pub(super) fn ratio(number: f64, per: f64) -> f64 {
    if per > 0.0 { (number / per * 1000.0).round() / 1000.0 } else { 0.0 }
}

impl Summary {
    pub(super) fn write_table(&self, out: &mut dyn Write) -> io::Result<()> {
        let bold = anstyle::Style::new().bold();
        let header = ["act", "deleted", "collected", "changed", "requests", "per object", "time", "objects/s"];
        let mut rows = vec![header.map(str::to_owned)];
        rows.extend(self.acts.iter().map(cells));
        let mut widths = [0; COLUMNS];
        for row in &rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.len());
            }
        }
        for (number, row) in rows.iter().enumerate() {
            let mut line = format!("  {:<width$}", row[0], width = widths[0]);
            for (cell, width) in row.iter().zip(widths).skip(1) {
                line.push_str(&format!("  {cell:>width$}"));
            }
            match number {
                0 => writeln!(out, "{bold}{line}{bold:#}")?,
                _ => writeln!(out, "{line}")?,
            }
        }
        Ok(())
    }
}

const COLUMNS: usize = 8;

fn cells(act: &ActSummary) -> [String; COLUMNS] {
    [
        act.name.to_owned(),
        grouped(act.deleted),
        grouped(act.collected),
        grouped(act.changed),
        grouped(act.requests),
        format!("{:.2}", act.requests_per_object),
        duration(act.seconds),
        grouped(act.objects_per_second.round() as u64),
    ]
}

/// `12 ms`, `3.4 s`.
pub(super) fn duration(seconds: f64) -> String {
    if seconds < 1.0 { format!("{:.0} ms", seconds * 1000.0) } else { format!("{seconds:.1} s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_for_people() {
        assert_eq!([duration(0.0123), duration(3.44)].join(" "), "12 ms 3.4 s");
        assert_eq!((ratio(1.0, 3.0), ratio(1.0, 0.0)), (0.333, 0.0));
    }
}
