//! Translates kubectl's paths to RFC 9535: `.items[*].metadata.labels.app\.kubernetes\.io/name` is
//! `$["items"][*]["metadata"]["labels"]["app.kubernetes.io/name"]`.

use std::iter::Peekable;
use std::str::Chars;

/// The characters that end the name of a field.
const ENDS: &str = ".[]()<>=!,&|@$ \t\n'\"{}";

/// Parses a quoted text. `None` if the input is not quoted. The error is a sentence.
pub(super) fn text(quoted: &str) -> Option<Result<String, String>> {
    let quote = quoted.chars().next().filter(|c| matches!(c, '"' | '\''))?;
    let mut chars = quoted.chars().peekable();
    Some(match string(&mut chars, quote) {
        Ok(text) if chars.peek().is_none() => Ok(text),
        Ok(_) => Err(format!("{quoted} continues after the closing quote")),
        Err(why) => Err(why),
    })
}

/// Translates a path. The error is a sentence.
pub(super) fn standard(path: &str) -> Result<String, String> {
    let mut chars = path.chars().peekable();
    match chars.peek() {
        // Both signs stand for the current value: the document, or an element of a range.
        Some('$' | '@') => {
            chars.next();
        }
        Some('.' | '[') => {}
        Some(_) | None => {
            return Err(format!(
                "{path:?} is not a path: a path begins with a dot, like .items[*].name; a text needs quotes"
            ));
        }
    }
    let mut out = "$".to_owned();
    steps(&mut chars, &mut out)?;
    match chars.next() {
        None => Ok(out),
        Some(c) => Err(format!("{path:?} is not supported from {c:?} on: braces contain exactly one path")),
    }
}

/// Translates fields, indices and filters, up to the end of the path.
fn steps(chars: &mut Peekable<Chars<'_>>, out: &mut String) -> Result<(), String> {
    loop {
        match chars.peek() {
            Some('.') => {
                chars.next();
                let deep = chars.next_if_eq(&'.').is_some();
                out.push_str(if deep { ".." } else { "" });
                match chars.peek() {
                    Some('[') if deep => {}
                    Some('*') => {
                        chars.next();
                        out.push_str("[*]");
                    }
                    _ => out.push_str(&field(chars)?),
                }
            }
            Some('[') => brackets(chars, out)?,
            Some(_) | None => return Ok(()),
        }
    }
}

/// A name as `["name"]`. A backslash escapes the next character. A lone dot is the value itself.
fn field(chars: &mut Peekable<Chars<'_>>) -> Result<String, String> {
    let mut name = String::new();
    while let Some(c) = chars.next_if(|c| !ENDS.contains(*c)) {
        match c {
            '\\' => name.push(chars.next().ok_or("a backslash ends the path")?),
            c => name.push(c),
        }
    }
    Ok(if name.is_empty() { String::new() } else { format!("[{}]", json(&name)) })
}

/// From an opening bracket to its closing one. Texts get the RFC's quotes, and paths within a filter are translated.
fn brackets(chars: &mut Peekable<Chars<'_>>, out: &mut String) -> Result<(), String> {
    let mut depth = 0_usize;
    while let Some(&c) = chars.peek() {
        match c {
            '"' | '\'' => out.push_str(&json(&string(chars, c)?)),
            '@' | '$' => {
                out.push(c);
                chars.next();
                steps(chars, out)?;
            }
            _ => {
                out.push(c);
                chars.next();
            }
        }
        match c {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            return Ok(());
        }
    }
    Err("a bracket is not closed".to_owned())
}

/// A text from its opening quote to its closing one.
fn string(chars: &mut Peekable<Chars<'_>>, quote: char) -> Result<String, String> {
    chars.next();
    let mut text = String::new();
    loop {
        match chars.next() {
            None => return Err(format!("the text {text:?} is not closed")),
            Some(c) if c == quote => return Ok(text),
            Some('\\') => text.push(match chars.next() {
                Some('n') => '\n',
                Some('t') => '\t',
                Some('r') => '\r',
                Some(c) if "\\\"'/".contains(c) => c,
                Some(c) => return Err(format!("\\{c} in a text is not supported")),
                None => return Err("a backslash ends the text".to_owned()),
            }),
            Some(c) => text.push(c),
        }
    }
}

fn json(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
