//! Escapes text from outside for a terminal, a log or a page, as [`engine::text`] does.

pub use engine::text::is_harmless;
use engine::text::spelled;
use std::borrow::Cow;
use std::fmt::{self, Write as _};

/// One line: line feeds are escaped, too.
pub fn line(text: &str) -> Cow<'_, str> {
    spelled(text, is_harmless)
}

/// Several lines: line feeds stay.
pub fn lines(text: &str) -> Cow<'_, str> {
    spelled(text, |character| character == '\n' || is_harmless(character))
}

/// Lines with this program's colours. Line feeds and colour sequences stay. Pass text from outside through [`line()`]
/// before adding it to such lines, because it may contain such sequences.
pub fn styled(text: &str) -> Cow<'_, str> {
    if text.chars().all(|character| character == '\n' || is_harmless(character)) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("\u{1b}[") {
        let (before, from) = rest.split_at(at);
        shown.push_str(&lines(before));
        let parameters = from[2..].find(|c: char| !c.is_ascii_digit() && c != ';').map_or(from.len(), |end| end + 2);
        let is_style = from[parameters..].starts_with('m');
        let end = if is_style { parameters + 1 } else { 2 };
        shown.push_str(&if is_style { Cow::Borrowed(&from[..end]) } else { lines(&from[..end]) });
        rest = &from[end..];
    }
    shown.push_str(&lines(rest));
    Cow::Owned(shown)
}

/// A JSON text. The result has the same value: outside of its strings there are no such characters, and inside they are
/// escaped as in JSON.
pub fn json(text: &str) -> Cow<'_, str> {
    let keeps = |character: char| character == '\n' || is_harmless(character);
    if text.chars().all(keeps) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        if keeps(character) {
            shown.push(character);
            continue;
        }
        for unit in character.encode_utf16(&mut [0; 2]) {
            // Writing to a string cannot fail.
            let _ = write!(shown, "\\u{unit:04x}");
        }
    }
    Cow::Owned(shown)
}

/// Writes a value as one line.
#[derive(Debug)]
pub struct Line<W>(pub W);

impl<W: fmt::Write> fmt::Write for Line<W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.write_str(&line(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_acts_on_a_terminal_is_spelled_out_and_what_shows_itself_stays() {
        let cases = [
            ("plain-name", "plain-name"),
            ("系统:管理员 über ｗｉｄｅ 🦀", "系统:管理员 über ｗｉｄｅ 🦀"),
            ("\u{1b}[2J\u{1b}]0;pwned\u{7}", r"\u{1b}[2J\u{1b}]0;pwned\u{7}"),
            ("a\r\nb\tc\u{8}", r"a\r\nb\tc\u{8}"),
            ("\u{7f}\u{80}\u{9b}31m\u{9f}", r"\u{7f}\u{80}\u{9b}31m\u{9f}"),
            ("\u{202e}gnp.exe\u{2066}\u{200f}", r"\u{202e}gnp.exe\u{2066}\u{200f}"),
            ("a\u{200b}b\u{feff}c\u{2060}d\u{ad}\u{2028}", r"a\u{200b}b\u{feff}c\u{2060}d\u{ad}\u{2028}"),
            ("\u{e0041}", r"\u{e0041}"),
        ];
        for (text, shown) in cases {
            assert_eq!(line(text), shown);
            assert_eq!(line(shown), shown, "what was spelled out once stays as it is");
        }
        assert_eq!(lines("a\nb\r"), "a\nb\\r");
    }

    #[test]
    fn colours_of_our_own_stay_and_no_other_sequence() {
        let cases = [
            ("\u{1b}[1;31mred\u{1b}[0m\n", "\u{1b}[1;31mred\u{1b}[0m\n"),
            ("\u{1b}[m\u{1b}[2J", "\u{1b}[m\\u{1b}[2J"),
            ("\u{1b}[31", "\\u{1b}[31"),
            ("\u{1b}[\u{1b}[1m\u{1b}", "\\u{1b}[\u{1b}[1m\\u{1b}"),
            ("\u{1b}]0;t\u{7}", "\\u{1b}]0;t\\u{7}"),
            ("plain\n", "plain\n"),
        ];
        for (text, shown) in cases {
            assert_eq!(styled(text), shown);
        }
    }

    #[test]
    fn json_stays_the_same_json() {
        let value = serde_json::json!({ "a\u{202e}": ["\u{1b}\n\u{7f}\u{9b}", "\u{e0041}系"] });
        for text in [value.to_string(), format!("{value:#}")] {
            let shown = json(&text);
            assert!(shown.chars().all(|character| character == '\n' || is_harmless(character)), "{shown}");
            assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap(), value);
        }
    }
}
