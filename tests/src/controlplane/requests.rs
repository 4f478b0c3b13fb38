//! The number of requests that the API server has answered, by its own count.

use anyhow::{Context, bail};

const METRIC: &str = "apiserver_request_total";

/// One time series of `apiserver_request_total`. A watch counts at its end. A request without a route does not count.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RequestCount {
    /// `GET`, `LIST`, `WATCH`, `POST`, `PUT`, `PATCH`, `APPLY`, `DELETE`, `DELETECOLLECTION`.
    pub verb: String,
    /// The HTTP status.
    pub code: String,
    /// The API group. It is empty for the core group.
    pub group: String,
    pub version: String,
    /// The plural. It is empty for a path that is no resource.
    pub resource: String,
    /// The path, if it is no resource.
    pub subresource: String,
    /// `resource`, `namespace` or `cluster`.
    pub scope: String,
    pub count: u64,
}

/// All time series at one time.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RequestCounts(Vec<RequestCount>);

impl RequestCounts {
    /// Parses the text format of `/metrics`.
    pub(super) fn parse(text: &str) -> anyhow::Result<Self> {
        text.lines()
            .filter_map(|line| line.strip_prefix(METRIC)?.strip_prefix('{'))
            .map(|line| series(line).with_context(|| format!("in /metrics: {METRIC}{{{line}")))
            .collect::<anyhow::Result<_>>()
            .map(Self)
    }

    /// Returns the sum of the series for which `counted` is true.
    pub fn total(&self, counted: impl Fn(&RequestCount) -> bool) -> u64 {
        self.0.iter().filter(|request| counted(request)).map(|request| request.count).sum()
    }

    /// Returns the increase since `earlier`. Series without an increase are left out.
    pub fn since(&self, earlier: &Self) -> Self {
        let before = |request: &RequestCount| {
            earlier.total(|other| RequestCount { count: request.count, ..other.clone() } == *request)
        };
        let grown = self
            .0
            .iter()
            .map(|request| RequestCount { count: request.count.saturating_sub(before(request)), ..request.clone() });
        Self(grown.filter(|request| request.count > 0).collect())
    }

    /// Returns each time series, in the server's order.
    pub fn iter(&self) -> impl Iterator<Item = &RequestCount> {
        self.0.iter()
    }
}

/// Parses `name="value",…} number`.
fn series(mut line: &str) -> anyhow::Result<RequestCount> {
    let mut request = RequestCount::default();
    while !line.starts_with('}') {
        let (name, rest) = line.split_once("=\"").context("a label without a value")?;
        let (value, rest) = quoted(rest)?;
        line = rest.strip_prefix(',').unwrap_or(rest);
        match name {
            "verb" => request.verb = value,
            "code" => request.code = value,
            "group" => request.group = value,
            "version" => request.version = value,
            "resource" => request.resource = value,
            "subresource" => request.subresource = value,
            "scope" => request.scope = value,
            _ => {}
        }
    }
    let number: f64 = line[1..].split_whitespace().next().context("no number")?.parse()?;
    if !(number >= 0.0 && number < 2f64.powi(53)) {
        bail!("{number} is no count");
    }
    // The check above limits the range. Counters are floats, and large ones have an exponent.
    request.count = number as u64;
    Ok(request)
}

/// Returns the value up to its closing quote, and the rest.
fn quoted(text: &str) -> anyhow::Result<(String, &str)> {
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Ok((value, &text[at + 1..])),
            '\\' => match characters.next() {
                Some((_, 'n')) => value.push('\n'),
                Some((_, escaped)) => value.push(escaped),
                None => break,
            },
            _ => value.push(character),
        }
    }
    bail!("a value without a closing quote")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"# HELP apiserver_request_total Counter of requests.
apiserver_request_total{code="200",component="apiserver",dry_run="",group="",resource="configmaps",scope="resource",subresource="",verb="DELETE",version="v1"} 1.000012e+06
apiserver_request_total{code="404",group="a\"b\\,c}",resource="",verb="GET"} 3
apiserver_request_total_other{code="404"} 7
"#;

    #[test]
    fn series_are_read_with_escapes_and_exponents() {
        let counts = RequestCounts::parse(TEXT).unwrap();
        assert_eq!(counts.iter().count(), 2);
        assert_eq!(counts.total(|request| request.verb == "DELETE" && request.resource == "configmaps"), 1_000_012);
        assert_eq!(counts.total(|request| request.group == "a\"b\\,c}"), 3);
    }

    #[test]
    fn growth_is_per_series() {
        let earlier = RequestCounts::parse(TEXT).unwrap();
        let later = RequestCounts::parse(&TEXT.replace("} 3", "} 5")).unwrap();
        let growth = later.since(&earlier);
        assert_eq!(
            growth.iter().map(|request| (request.code.as_str(), request.count)).collect::<Vec<_>>(),
            [("404", 2)]
        );
        assert_eq!(later.since(&RequestCounts::default()), later);
    }

    #[test]
    fn torn_lines_are_errors() {
        for line in
            ["{code=\"200", "{code", "{code=\"200\"}", "{code=\"200\"} many", "{code=\"200\"} NaN", "{code=\"2\\"]
        {
            assert!(RequestCounts::parse(&format!("{METRIC}{line}")).is_err(), "{line}");
        }
    }
}
