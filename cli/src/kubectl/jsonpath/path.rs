//! kubectl's paths in the words of RFC 9535: `.items[*].metadata.labels.app\.kubernetes\.io/name` is
//! `$["items"][*]["metadata"]["labels"]["app.kubernetes.io/name"]`.

use std::iter::Peekable;
use std::str::Chars;

/// What ends the name of a field.
const ENDS: &str = ".[]()<>=!,&|@$ \t\n'\"{}";

/// A quoted text, where it is one. The error is a sentence.
pub(super) fn text(quoted: &str) -> Option<Result<String, String>> {
    let quote = quoted.chars().next().filter(|c| matches!(c, '"' | '\''))?;
    let mut chars = quoted.chars().peekable();
    Some(match string(&mut chars, quote) {
        Ok(text) if chars.peek().is_none() => Ok(text),
        Ok(_) => Err(format!("{quoted} goes on behind its text")),
        Err(why) => Err(why),
    })
}

/// A path in the words of the RFC. The error is a sentence.
pub(super) fn standard(path: &str) -> Result<String, String> {
    let mut chars = path.chars().peekable();
    match chars.peek() {
        // Both are what a template stands before: the document, or what a range has come to.
        Some('$' | '@') => {
            chars.next();
        }
        Some('.' | '[') => {}
        Some(_) | None => {
            return Err(format!(
                "{path:?} is no path: one begins with a dot, as .items[*].name; a text stands in quotes"
            ));
        }
    }
    let mut out = "$".to_owned();
    steps(&mut chars, &mut out)?;
    match chars.next() {
        None => Ok(out),
        Some(c) => Err(format!("{path:?} is not supported from {c:?} on: a pair of braces holds one path")),
    }
}

/// Fields, indices and filters, as far as they go.
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

/// A name as `["name"]`; a backslash takes its meaning from what follows. A lone dot is the value itself.
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

/// From an opening bracket to its closing one: texts in the RFC's quotes, and paths within a filter likewise put into its words.
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
