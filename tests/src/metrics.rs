//! Writes `docs/metrics.md`, and compares it with the metrics that a program shows.

use anyhow::{Context, bail};
use runtime::metrics::{Description, Kind, Values};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

const HEAD: &str = "# Metrics\n\nGenerated from the programs by `BLESS=1 cargo test -p tests --test together metrics::the_page`. A test compares the page with the output of running programs.\n\nBoth \
services serve `/metrics` at their admin address: in OpenMetrics to clients that accept it, else in the older text format. `ownergraph collect` shows the \
metrics of both services, with those of its executors added up. Gauges are computed at each scrape; while objects are collected, only counters are \
updated. Labels have the listed values, or the stated number of values.\n\n`deploy/dashboards` has a Grafana dashboard. `deploy/alerts` has Prometheus rules. \
Each alert has a [runbook](operate.md#alerts).\n";

/// The described metrics of each program, with the section of the program.
pub fn programs() -> [(&'static str, &'static str, Vec<Description>); 4] {
    [
        ("graph-service", "Of the graph service, for each replica.", graph_service::described()),
        ("executor-service", "Of executors.", executor_service::described()),
        ("tls", "Of both services, where they serve TLS.", runtime::tls::described()),
        ("process", "Of every process, on Linux.", runtime::process::described()),
    ]
}

/// Returns the whole page.
pub fn page() -> String {
    let mut page = String::from(HEAD);
    // A write to a string does not fail.
    for (title, about, described) in programs() {
        let _infallible = write!(
            page,
            "\n## {title}\n\n{about}\n\n| Metric | Labels | What it is | What to do with it |\n|---|---|---|---|\n"
        );
        for known in described {
            let kind = known.kind.as_str();
            let labels: Vec<String> = known.labels.iter().map(label).collect();
            let (labels, help) = (labels.join("<br>"), known.help);
            let _infallible = writeln!(page, "| `{}`<br>{kind} | {labels} | {help}. | {} |", known.name, known.advice);
        }
    }
    page
}

fn label(label: &runtime::metrics::Label) -> String {
    match &label.values {
        Values::Of(values) => format!("`{}`: {}", label.name, values.join(", ")),
        Values::Bounded(why) => format!("`{}`: {why}", label.name),
    }
}

/// One line of a program's metrics.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// The name of the metric, without the suffixes of histograms.
    pub family: String,
    pub labels: BTreeMap<String, String>,
    pub value: f64,
}

/// The metrics of a program.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scrape {
    /// The type and the help by name.
    pub families: BTreeMap<String, (String, String)>,
    pub samples: Vec<Sample>,
}

impl Scrape {
    /// Parses the older text format.
    ///
    /// # Errors
    /// The text has another format.
    pub fn read(text: &str) -> anyhow::Result<Scrape> {
        let mut scrape = Scrape::default();
        let mut helps = BTreeMap::new();
        for line in text.lines() {
            let mut words = line.splitn(4, ' ');
            match (words.next(), words.next(), words.next(), words.next()) {
                (Some("#"), Some("HELP"), Some(name), Some(help)) => {
                    helps.insert(name.to_owned(), help.trim_end_matches('.').to_owned());
                }
                (Some("#"), Some("TYPE"), Some(name), Some(kind)) => {
                    let help = helps.get(name).cloned().unwrap_or_default();
                    scrape.families.insert(name.to_owned(), (kind.to_owned(), help));
                }
                _ => scrape.samples.push(sample(line, &scrape.families).with_context(|| format!("line {line:?}"))?),
            }
        }
        Ok(scrape)
    }

    /// Lists the differences from the descriptions.
    pub fn differences(&self, described: &[Description]) -> Vec<String> {
        let mut found = Vec::new();
        let known: BTreeMap<&str, &Description> = described.iter().map(|known| (known.name.as_str(), known)).collect();
        for (name, (kind, help)) in &self.families {
            match known.get(name.as_str()) {
                None => found.push(format!("{name} is shown and not described")),
                Some(known) if known.kind.as_str() != kind || known.help != help => {
                    found.push(format!("{name} is shown as {kind}, {help:?}"));
                }
                Some(_) => {}
            }
        }
        for known in described {
            if !self.families.contains_key(&known.name) {
                found.push(format!("{} is described and not shown", known.name));
            }
        }
        for sample in &self.samples {
            let Some(known) = known.get(sample.family.as_str()) else { continue };
            let mut names: BTreeSet<&str> = known.labels.iter().map(|label| label.name).collect();
            if known.kind == Kind::Histogram {
                names.insert("le");
            }
            for (name, value) in &sample.labels {
                let label = known.labels.iter().find(|label| label.name == name);
                let fits = match label.map(|label| &label.values) {
                    Some(Values::Of(values)) => values.contains(&value.as_str()),
                    Some(Values::Bounded(_)) => true,
                    None => names.contains(name.as_str()),
                };
                if !fits {
                    found.push(format!("{} has {name}={value:?}, which is not described", sample.family));
                }
            }
        }
        found
    }
}

fn sample(line: &str, families: &BTreeMap<String, (String, String)>) -> anyhow::Result<Sample> {
    let (series, value) = line.rsplit_once(' ').context("no value")?;
    let (name, labels) = match series.split_once('{') {
        Some((name, rest)) => (name, rest.strip_suffix('}').context("no end of the labels")?),
        None => (series, ""),
    };
    let mut read = BTreeMap::new();
    // No value of ours contains a quote or a comma.
    for pair in labels.split(',').filter(|pair| !pair.is_empty()) {
        let Some((label, value)) = pair.split_once("=\"") else { bail!("label {pair:?}") };
        read.insert(label.to_owned(), value.trim_end_matches('"').to_owned());
    }
    let endings = ["", "_bucket", "_count", "_sum"];
    let family =
        endings.iter().filter_map(|ending| name.strip_suffix(ending)).find(|name| families.contains_key(*name));
    let family = family.context("a sample before its type")?.to_owned();
    Ok(Sample { family, labels: read, value: value.parse().context("the value")? })
}

/// Returns the metrics that an expression names, each with the labels of its selectors.
pub fn used(expression: &str) -> Vec<(String, Vec<String>)> {
    let word = |character: char| character.is_ascii_alphanumeric() || character == '_' || character == ':';
    let mut found = Vec::new();
    let mut rest = expression;
    while let Some(at) = rest.find(|character: char| character.is_ascii_alphabetic()) {
        let before = rest[..at].chars().next_back();
        rest = &rest[at..];
        let end = rest.find(|character: char| !word(character)).unwrap_or(rest.len());
        let (name, after) = rest.split_at(end);
        rest = after;
        let is_metric = (name.starts_with("ownergraph_") || name.starts_with("process_")) && before != Some('"');
        if is_metric {
            let selector =
                after.strip_prefix('{').and_then(|inner| inner.split_once('}')).map_or("", |(inner, _)| inner);
            let labels =
                selector.split(',').filter_map(|pair| pair.split_once(['=', '!'])).map(|(label, _)| label.trim());
            found.push((name.to_owned(), labels.filter(|label| !label.is_empty()).map(str::to_owned).collect()));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use runtime::metrics::Label;

    #[test]
    fn what_is_not_as_described_is_found() -> anyhow::Result<()> {
        let text = "# HELP a_total What.\n# TYPE a_total counter\na_total{x=\"1\",y=\"2\"} 3\n# HELP b_seconds B.\n# TYPE b_seconds histogram\n\
            b_seconds_bucket{le=\"+Inf\"} 1\nb_seconds_sum 2.5\nb_seconds_count 1\n";
        let scrape = Scrape::read(text)?;
        assert_eq!(scrape.samples.len(), 4);
        let counter = Description {
            name: "a_total".to_owned(),
            kind: Kind::Counter,
            labels: vec![Label::of("x", ["1"]), Label::bounded("y", "few")],
            help: "What",
            advice: "",
        };
        let histogram =
            Description { name: "b_seconds".to_owned(), kind: Kind::Histogram, labels: vec![], help: "B", advice: "" };
        assert_eq!(scrape.differences(&[counter.clone(), histogram.clone()]), Vec::<String>::new());
        let gone = Description { name: "c".to_owned(), ..histogram };
        let other = Description { labels: vec![Label::of("x", ["2"])], ..counter };
        let found = scrape.differences(&[other, gone]);
        assert_eq!(
            found,
            [
                "b_seconds is shown and not described",
                "c is described and not shown",
                "a_total has x=\"1\", which is not described",
                "a_total has y=\"2\", which is not described",
            ]
        );
        Ok(())
    }

    #[test]
    fn names_and_labels_of_expressions_are_found() {
        let found = used("sum by (le) (rate(ownergraph_a_bucket{x=~\"b|c\",y!=\"ownergraph_\"}[5m])) / process_b");
        let expected = [
            ("ownergraph_a_bucket".to_owned(), vec!["x".to_owned(), "y".to_owned()]),
            ("process_b".to_owned(), vec![]),
        ];
        assert_eq!(found, expected);
    }
}
