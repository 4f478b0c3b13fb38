//! Metrics with descriptions. The page about metrics is generated from the registered metrics, so the two cannot
//! differ.

use prometheus_client::metrics::{MetricType, TypedMetric};
use prometheus_client::registry::{Metric, Registry, Unit};
use std::collections::BTreeSet;

/// Suffixes of names that are units.
const UNITS: [(&str, Unit); 2] = [("_seconds", Unit::Seconds), ("_bytes", Unit::Bytes)];

/// The description of a metric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// The name in queries. Counters end with `_total`.
    pub name: String,
    pub kind: Kind,
    pub labels: Vec<Label>,
    /// The meaning, as one sentence without a full stop.
    pub help: &'static str,
    /// The advice for operators, in sentences.
    pub advice: &'static str,
}

/// See [`Description`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// A label of a metric, with the bound on its values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    pub name: &'static str,
    pub values: Values,
}

/// See [`Label`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Values {
    /// Exactly these values.
    Of(Vec<&'static str>),
    /// As many values as this sentence says.
    Bounded(&'static str),
}

impl Label {
    /// A label with exactly these values.
    pub fn of(name: &'static str, values: impl IntoIterator<Item = &'static str>) -> Label {
        Label { name, values: Values::Of(values.into_iter().collect()) }
    }

    /// A label with values from outside. `why` states the bound.
    pub fn bounded(name: &'static str, why: &'static str) -> Label {
        Label { name, values: Values::Bounded(why) }
    }
}

impl Kind {
    /// The word for pages.
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        }
    }
}

/// Registers metrics, and keeps their descriptions.
#[derive(Debug)]
pub struct Book<'a> {
    registry: &'a mut Registry,
    described: Vec<Description>,
}

impl<'a> Book<'a> {
    pub fn new(registry: &'a mut Registry) -> Book<'a> {
        Book { registry, described: Vec::new() }
    }

    /// Registers a metric under this name, without the `_total` of counters. A suffix that is a unit sets the unit.
    ///
    /// # Panics
    /// The name is taken.
    pub fn put<M: Metric + TypedMetric + Clone>(
        &mut self,
        name: &'static str,
        labels: impl IntoIterator<Item = Label>,
        (help, advice): (&'static str, &'static str),
        metric: M,
    ) -> M {
        let kind = kind(M::TYPE);
        self.describe(name, kind, labels, (help, advice));
        match split_unit(name) {
            (stem, Some(unit)) => self.registry.register_with_unit(stem, help, unit, metric.clone()),
            (_, None) => self.registry.register(name, help, metric.clone()),
        }
        metric
    }

    /// Describes a metric that a collector exports. See [`Book::registry`].
    ///
    /// # Panics
    /// The name is taken.
    pub fn describe(
        &mut self,
        name: &str,
        kind: Kind,
        labels: impl IntoIterator<Item = Label>,
        (help, advice): (&'static str, &'static str),
    ) {
        let total = if kind == Kind::Counter { "_total" } else { "" };
        let name = format!("{name}{total}");
        assert!(self.described.iter().all(|known| known.name != name), "{name} is registered twice");
        self.described.push(Description { name, kind, labels: labels.into_iter().collect(), help, advice });
    }

    /// The registry, for collectors.
    pub fn registry(&mut self) -> &mut Registry {
        self.registry
    }

    /// The descriptions in the order of registration.
    pub fn into_descriptions(self) -> Vec<Description> {
        self.described
    }
}

/// A name without its unit, and the unit.
pub fn split_unit(name: &str) -> (&str, Option<Unit>) {
    for (ending, unit) in UNITS {
        if let Some(stem) = name.strip_suffix(ending) {
            return (stem, Some(unit));
        }
    }
    (name, None)
}

/// Converts OpenMetrics to the older text format of Prometheus. In that format, counters are described by their whole
/// name, and there are neither units nor an end mark.
pub(crate) fn as_prometheus_text(openmetrics: &str) -> String {
    let counter = |line: &'_ str| Some(line.strip_prefix("# TYPE ")?.strip_suffix(" counter")?.to_owned());
    let counters: BTreeSet<String> = openmetrics.lines().filter_map(counter).collect();
    let mut text = String::with_capacity(openmetrics.len());
    for line in openmetrics.lines() {
        if line == "# EOF" || line.starts_with("# UNIT ") {
            continue;
        }
        let mut words = line.splitn(4, ' ');
        match (words.next(), words.next(), words.next(), words.next()) {
            (Some("#"), Some(what), Some(name), Some(rest)) if counters.contains(name) => {
                text.push_str(&format!("# {what} {name}_total {rest}"));
            }
            _ => text.push_str(line),
        }
        text.push('\n');
    }
    text
}

fn kind(of: MetricType) -> Kind {
    match of {
        MetricType::Counter => Kind::Counter,
        MetricType::Histogram => Kind::Histogram,
        MetricType::Gauge | MetricType::Info | MetricType::Unknown => Kind::Gauge,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::encode;
    use prometheus_client::metrics::counter::Counter;
    use prometheus_client::metrics::family::Family;
    use prometheus_client::metrics::gauge::Gauge;

    #[test]
    fn what_is_registered_is_described_and_reads_in_both_forms() {
        let mut registry = Registry::default();
        let mut book = Book::new(&mut registry);
        let label = Label::of("action", ["delete"]);
        let about = ("Decisions made", "Nothing.");
        let decisions = book.put("decisions", [label.clone()], about, Family::<[(&str, &str); 1], Counter>::default());
        let age = book.put("oldest_seconds", [], ("Age of it", "Nothing."), Gauge::<i64>::default());
        let described = book.into_descriptions();
        let names: Vec<_> = described.iter().map(|known| (known.name.as_str(), known.kind.as_str())).collect();
        assert_eq!(names, [("decisions_total", "counter"), ("oldest_seconds", "gauge")]);
        assert_eq!(described[0].labels, [label]);
        decisions.get_or_create(&[("action", "delete")]).inc();
        age.set(7);
        let open = encode(&registry);
        assert_eq!(
            open,
            "# HELP decisions Decisions made.\n# TYPE decisions counter\ndecisions_total{action=\"delete\"} 1\n\
             # HELP oldest_seconds Age of it.\n# TYPE oldest_seconds gauge\n# UNIT oldest_seconds seconds\noldest_seconds 7\n# EOF\n"
        );
        assert_eq!(
            as_prometheus_text(&open),
            "# HELP decisions_total Decisions made.\n# TYPE decisions_total counter\ndecisions_total{action=\"delete\"} 1\n\
             # HELP oldest_seconds Age of it.\n# TYPE oldest_seconds gauge\noldest_seconds 7\n"
        );
    }
}
