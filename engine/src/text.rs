//! Escapes text from outside. Users of a cluster choose names, messages and references. Some characters move the
//! cursor, clear the screen, write from right to left, or are invisible: these are escaped, as `\u{1b}`. All others
//! stay as they are, including wide characters.

use alloc::borrow::Cow;
use alloc::string::String;

/// The text with each character escaped that `keeps` does not keep.
pub fn spelled(text: &str, keeps: impl Fn(char) -> bool) -> Cow<'_, str> {
    if text.chars().all(&keeps) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        match character {
            _ if keeps(character) => shown.push(character),
            '\n' => shown.push_str("\\n"),
            '\r' => shown.push_str("\\r"),
            '\t' => shown.push_str("\\t"),
            _ => shown.extend(character.escape_unicode()),
        }
    }
    Cow::Owned(shown)
}

/// Whether a character is visible and has no other effect.
pub fn is_harmless(character: char) -> bool {
    match character {
        ' '..='~' => true,
        // Soft hyphen, Arabic letter mark, Hangul fillers, invisible Khmer vowels, Mongolian separators.
        '\u{ad}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}' => false,
        // Zero-width spaces, marks and overrides of direction, line separators, invisible operators.
        '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' => false,
        '\u{3164}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' => false,
        // Tags, and other invisible characters.
        '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}' => false,
        _ => !character.is_control(),
    }
}
