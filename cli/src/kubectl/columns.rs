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
pub(super) fn columns(heads: &[&str], rows: &[Vec<Cell>]) -> String {
    let mut widths: Vec<usize> = heads.iter().map(|head| head.width()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.text.width());
        }
    }
    let heads: Vec<Cell> = heads.iter().map(|head| Cell::plain(*head)).collect();
    let mut text = String::new();
    for row in std::iter::once(&heads).chain(rows) {
        let last = row.len().saturating_sub(1);
        for (at, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let Cell { text: words, style } = cell;
            text.push_str(&format!("{style}{words}{style:#}"));
            if at < last {
                text.push_str(&" ".repeat(width - words.width()));
                text.push_str(GAP);
            }
        }
        text.push('\n');
    }
    text
}

/// A span as kubectl writes it: `45s`, `3m`, `6h`, `41d`.
pub(super) fn span(seconds: i64) -> String {
    match seconds.max(0) {
        seconds @ 0..120 => format!("{seconds}s"),
        seconds @ 120..7_200 => format!("{}m", seconds / 60),
        seconds @ 7_200..172_800 => format!("{}h", seconds / 3_600),
        seconds => format!("{}d", seconds / 86_400),
    }
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

    #[test]
    fn spans_are_kubectls() {
        let spans = [-5, 119, 120, 7_199, 7_200, 172_799, 172_800].map(span);
        assert_eq!(spans, ["0s", "119s", "2m", "119m", "2h", "47h", "2d"]);
    }
}
