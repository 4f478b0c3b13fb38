//! Columns of text, and time spans.

use anstyle::{AnsiColor, Style};
use runtime::visible::line;
use std::time::{SystemTime, UNIX_EPOCH};
use unicode_width::UnicodeWidthStr as _;

const GAP: &str = "  ";

/// A cell and its colour. The text contains all information that the colour shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Cell {
    text: String,
    style: Style,
}

impl Cell {
    /// A cell without colour. An unknown value is a dash, and characters that would control the terminal are escaped.
    pub(super) fn plain(text: impl Into<String>) -> Cell {
        let text = line(&text.into()).into_owned();
        Cell { text: if text.is_empty() { "-".to_owned() } else { text }, style: Style::new() }
    }

    pub(super) fn bold(text: impl Into<String>) -> Cell {
        Cell { style: Style::new().bold(), ..Cell::plain(text) }
    }

    /// A cell for what a person has to look at.
    pub(super) fn alarming(text: impl Into<String>) -> Cell {
        Cell { style: AnsiColor::Red.on_default().bold(), ..Cell::plain(text) }
    }

    /// A cell for a state, in green, yellow, red or grey.
    pub(super) fn state(word: &str) -> Cell {
        let colour = match word {
            "Current" | "solid" => AnsiColor::Green,
            "InProgress" | "deleting" | "orphaning" | "waiting" => AnsiColor::Yellow,
            "Failed" | "Terminating" | "dangling" | "blocked" => AnsiColor::Red,
            _ => return Cell::plain(word),
        };
        Cell { style: colour.on_default(), ..Cell::plain(word) }
    }
}

/// The rows below their headings. Each column is as wide as its widest cell.
pub(super) fn columns(heads: &[impl AsRef<str>], rows: &[Vec<Cell>]) -> String {
    let heads: Vec<Cell> = heads.iter().map(|head| Cell::plain(head.as_ref())).collect();
    let mut widths = Widths::default();
    std::iter::once(&heads).chain(rows).for_each(|row| widths.widen(row));
    std::iter::once(&heads).chain(rows).map(|row| widths.row(row)).collect()
}

/// The widths of the columns of a table whose later rows are not known yet. They only grow.
#[derive(Debug, Default)]
pub(super) struct Widths(Vec<usize>);

impl Widths {
    pub(super) fn widen(&mut self, row: &[Cell]) {
        self.0.resize(self.0.len().max(row.len()), 0);
        for (width, cell) in self.0.iter_mut().zip(row) {
            *width = (*width).max(cell.text.width());
        }
    }

    pub(super) fn row(&self, row: &[Cell]) -> String {
        let last = row.len().saturating_sub(1);
        let mut text = String::new();
        for (at, (Cell { text: words, style }, width)) in row.iter().zip(&self.0).enumerate() {
            text.push_str(&format!("{style}{words}{style:#}"));
            if at < last {
                text.push_str(&" ".repeat(width.saturating_sub(words.width())));
                text.push_str(GAP);
            }
        }
        text.push('\n');
        text
    }
}

/// The length of a unit in seconds, and its letter.
type Unit = (i64, char);

/// A span as kubectl writes ages, with two or three significant digits: `2m10s`, `120m`, `5h23m`, `2d4h`, `2y20d`. A
/// time in the future counts as now.
pub(super) fn span(seconds: i64) -> String {
    const MINUTE: i64 = 60;
    const HOUR: i64 = 60 * MINUTE;
    const DAY: i64 = 24 * HOUR;
    const YEAR: i64 = 365 * DAY;
    // The end of each range, its unit, and the unit of the remainder if that is shown.
    const RANGES: [(i64, Unit, Option<Unit>); 9] = [
        (2 * MINUTE, (1, 's'), None),
        (10 * MINUTE, (MINUTE, 'm'), Some((1, 's'))),
        (3 * HOUR, (MINUTE, 'm'), None),
        (8 * HOUR, (HOUR, 'h'), Some((MINUTE, 'm'))),
        (2 * DAY, (HOUR, 'h'), None),
        (8 * DAY, (DAY, 'd'), Some((HOUR, 'h'))),
        (2 * YEAR, (DAY, 'd'), None),
        (8 * YEAR, (YEAR, 'y'), Some((DAY, 'd'))),
        (i64::MAX, (YEAR, 'y'), None),
    ];
    let seconds = seconds.max(0);
    let [.., last] = RANGES;
    let (_, (length, unit), rest) = RANGES.into_iter().find(|(end, ..)| seconds < *end).unwrap_or(last);
    let rest = rest.map(|(small, unit)| (seconds % length / small, unit)).filter(|(count, _)| *count > 0);
    let rest = rest.map(|(count, unit)| format!("{count}{unit}")).unwrap_or_default();
    format!("{}{unit}{rest}", seconds / length)
}

/// The current time in seconds of the Unix epoch.
pub(super) fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_whatever_is_in_them() {
        let rows = vec![vec![Cell::bold("├─a"), Cell::plain("")], vec![Cell::plain("ü"), Cell::state("Current")]];
        let text = anstream::adapter::strip_str(&columns(&["NAME", "STATUS"], &rows)).to_string();
        assert_eq!(text, "NAME  STATUS\n├─a   -\nü     Current\n");
    }

    /// The expected texts are those of HumanDuration of k8s.io/apimachinery/pkg/util/duration.
    #[test]
    fn spans_are_kubectls() {
        const HOUR: i64 = 3_600;
        const DAY: i64 = 24 * HOUR;
        const YEAR: i64 = 365 * DAY;
        let cases = [
            (-5, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (130, "2m10s"),
            (599, "9m59s"),
            (600, "10m"),
            (7_200, "120m"),
            (3 * HOUR - 1, "179m"),
            (3 * HOUR, "3h"),
            (5 * HOUR + 23 * 60 + 59, "5h23m"),
            (8 * HOUR - 1, "7h59m"),
            (8 * HOUR + 1_800, "8h"),
            (2 * DAY - 1, "47h"),
            (2 * DAY, "2d"),
            (2 * DAY + 4 * HOUR, "2d4h"),
            (8 * DAY - 1, "7d23h"),
            (8 * DAY + 5 * HOUR, "8d"),
            (YEAR + 20 * DAY, "385d"),
            (2 * YEAR - 1, "729d"),
            (2 * YEAR, "2y"),
            (2 * YEAR + 20 * DAY, "2y20d"),
            (8 * YEAR - 1, "7y364d"),
            (8 * YEAR + 20 * DAY, "8y"),
            (i64::MAX, "292471208677y"),
        ];
        for (seconds, expected) in cases {
            assert_eq!(span(seconds), expected, "{seconds} s");
        }
    }
}
