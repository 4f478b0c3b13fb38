//! `-o jsonpath=…`: kubectl's templates. Text outside of braces is copied. Braces contain a path, a quoted text, or
//! `range PATH` up to `end`.
//!
//! A library evaluates the paths of RFC 9535. The syntax of kubectl is translated to that of the RFC first.

use jsonpath_rust::parser::model::JpQuery;
use jsonpath_rust::parser::parse_json_path;
use jsonpath_rust::query::js_path_process;
use path::{standard, text};
use runtime::visible::line;
use serde_json::Value;

mod path;
#[cfg(test)]
mod tests;

const TEMPLATE_MAX_BYTES: usize = 16 << 10;
/// Maximum nesting of ranges.
const NESTED_MAX: usize = 16;

/// A part of the output.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Template(Vec<Part>);

#[derive(Clone, Debug, PartialEq)]
enum Part {
    Text(String),
    /// The values that a path finds, separated by spaces.
    Found(Path),
    /// The same parts for each value that a path finds.
    Range(Path, Vec<Part>),
}

#[derive(Clone, Debug, PartialEq)]
struct Path(JpQuery);

impl Template {
    /// Parses a template. The error is a sentence.
    pub(crate) fn read(template: &str) -> Result<Template, String> {
        if template.len() > TEMPLATE_MAX_BYTES {
            return Err(format!("the template has more than {TEMPLATE_MAX_BYTES} bytes; shorten it"));
        }
        // The parts of each open range. The first entry is the template itself.
        let mut open: Vec<(Option<Path>, Vec<Part>)> = vec![(None, Vec::new())];
        let mut rest = template;
        while !rest.is_empty() {
            let (before, braced) = rest.split_once('{').unwrap_or((rest, ""));
            let opens = before.len() < rest.len();
            let mut parts: Vec<Part> = Vec::new();
            if !before.is_empty() {
                parts.push(Part::Text(before.to_owned()));
            }
            rest = braced;
            let mut range = None;
            let mut ends = false;
            if opens {
                let (inner, behind) = until_closed(braced)?;
                rest = behind;
                match inner.trim() {
                    "end" => ends = true,
                    inner => {
                        match inner.strip_prefix("range").filter(|rest| !rest.starts_with(char::is_alphanumeric)) {
                            Some(of) => range = Some(Path::read(of.trim())?),
                            None => parts.extend(pieces(inner)?),
                        }
                    }
                }
            }
            if let Some((_, innermost)) = open.last_mut() {
                innermost.append(&mut parts);
            }
            if let Some(path) = range {
                open.push((Some(path), Vec::new()));
            }
            if open.len() > NESTED_MAX {
                return Err(format!("ranges are nested more than {NESTED_MAX} deep"));
            }
            if ends {
                let Some((Some(path), parts)) = open.pop() else { return Err("{end} ends no {range …}".to_owned()) };
                if let Some((_, outer)) = open.last_mut() {
                    outer.push(Part::Range(path, parts));
                }
            }
        }
        match open.pop() {
            Some((None, parts)) if open.is_empty() => Ok(Template(parts)),
            _ => Err("a {range …} has no {end}".to_owned()),
        }
    }

    /// As with kubectl, a missing value adds nothing to the output, and the output ends with a line feed only if the
    /// template does.
    pub(super) fn fill(&self, value: &Value) -> String {
        let mut text = String::new();
        fill(&self.0, value, &mut text);
        text
    }
}

impl Path {
    fn read(text: &str) -> Result<Path, String> {
        let standard = standard(text)?;
        let query = parse_json_path(&standard)
            .map_err(|error| format!("{text:?} is not a valid path: {}", error.to_string().replace('\n', " ")))?;
        Ok(Path(query))
    }

    fn of<'v>(&self, value: &'v Value) -> Vec<&'v Value> {
        // This fails only for an invalid path.
        js_path_process(&self.0, value)
            .map(|found| found.into_iter().map(|one| one.val()).collect())
            .unwrap_or_default()
    }
}

fn fill(parts: &[Part], value: &Value, into: &mut String) {
    for part in parts {
        match part {
            Part::Text(text) => into.push_str(text),
            Part::Found(path) => {
                let found = path.of(value).into_iter().map(shown);
                into.push_str(&found.collect::<Vec<_>>().join(" "));
            }
            Part::Range(path, parts) => path.of(value).into_iter().for_each(|each| fill(parts, each, into)),
        }
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => line(text).into_owned(),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => value.to_string(),
    }
}

/// The text up to the closing brace, and the text after it. A brace in quotes does not close.
fn until_closed(text: &str) -> Result<(&str, &str), String> {
    let (mut quote, mut escaped) = (None, false);
    for (at, c) in text.char_indices() {
        match (quote, c) {
            _ if escaped => escaped = false,
            (_, '\\') => escaped = true,
            (Some(open), _) => quote = quote.filter(|_| c != open),
            (None, '"' | '\'') => quote = Some(c),
            (None, '}') => return Ok((&text[..at], &text[at + 1..])),
            (None, _) => {}
        }
    }
    Err(format!("the brace before {text:?} is not closed"))
}

/// A quoted text, or a path.
fn pieces(inner: &str) -> Result<Vec<Part>, String> {
    if inner.is_empty() {
        return Err("{} is empty".to_owned());
    }
    match text(inner) {
        Some(quoted) => Ok(vec![Part::Text(quoted?)]),
        None => Ok(vec![Part::Found(Path::read(inner)?)]),
    }
}
