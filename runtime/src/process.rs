//! Process metrics, under the names of Prometheus' own libraries. Read at each scrape, only on Linux.

use crate::metrics::{Book, Description, Kind, split_unit};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use std::fmt;
use std::fs;

/// `/proc` counts time in hundredths of a second, regardless of the kernel's tick.
const TICKS_PER_SECOND: f64 = 100.0;

const CPU: &str = "process_cpu_seconds";
const RESIDENT: &str = "process_resident_memory_bytes";
const VIRTUAL: &str = "process_virtual_memory_bytes";
const FILES: &str = "process_open_fds";
const FILES_MAX: &str = "process_max_fds";
const START: &str = "process_start_time_seconds";

const GAUGES: [(&str, (&str, &str)); 5] = [
    (
        RESIDENT,
        (
            "Memory of the process",
            "The budget of a graph service is 60 MB for 100,000 objects, 250 MB for a million and 2 GB for ten million; compare with `ownergraph_graph_bytes`.",
        ),
    ),
    (VIRTUAL, ("Address space of the process", "No action needed.")),
    (
        FILES,
        (
            "File descriptors that are open",
            "One for each watch and each connection. Alert before it reaches `process_max_fds`.",
        ),
    ),
    (FILES_MAX, ("Maximum number of open file descriptors", "Raise the limit if the cluster has more kinds.")),
    (START, ("Start time of the process, in seconds since 1970", "Its `changes()` counts restarts.")),
];

/// Registers the process metrics.
pub fn register(book: &mut Book<'_>) {
    let about = (
        "Processor time that the process has used",
        "Divide it by the number of collected objects to get the cost of one.",
    );
    book.describe(CPU, Kind::Counter, [], about);
    for (name, about) in GAUGES {
        book.describe(name, Kind::Gauge, [], about);
    }
    book.registry().register_collector(Box::new(OfProcess));
}

/// The metrics of [`register`].
pub fn described() -> Vec<Description> {
    let mut registry = Registry::default();
    let mut book = Book::new(&mut registry);
    register(&mut book);
    book.into_descriptions()
}

#[derive(Debug)]
struct OfProcess;

impl Collector for OfProcess {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        if let Some(seconds) = cpu() {
            let (stem, unit) = split_unit(CPU);
            let counter = encoder.encode_descriptor(
                stem,
                "Processor time that the process has used",
                unit.as_ref(),
                MetricType::Counter,
            )?;
            ConstCounter::new(seconds).encode(counter)?;
        }
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        for (name, (help, _)) in GAUGES {
            let Some(value) = read(name, &status) else { continue };
            let (stem, unit) = split_unit(name);
            ConstGauge::new(value).encode(encoder.encode_descriptor(
                stem,
                help,
                unit.as_ref(),
                MetricType::Gauge,
            )?)?;
        }
        Ok(())
    }
}

#[cfg(target_os = "linux")]
fn cpu() -> Option<f64> {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Some(time.tv_sec as f64 + time.tv_nsec as f64 / 1e9)
}

#[cfg(not(target_os = "linux"))]
fn cpu() -> Option<f64> {
    None
}

fn read(name: &str, status: &str) -> Option<f64> {
    match name {
        RESIDENT => kilobytes(status, "VmRSS:"),
        VIRTUAL => kilobytes(status, "VmSize:"),
        FILES => Some(fs::read_dir("/proc/self/fd").ok()?.count() as f64),
        FILES_MAX => number_after(&fs::read_to_string("/proc/self/limits").ok()?, "Max open files"),
        START => {
            let booted = number_after(&fs::read_to_string("/proc/stat").ok()?, "btime")?;
            let stat = fs::read_to_string("/proc/self/stat").ok()?;
            // The second field is the program's name in parentheses, which may contain any character. The start time is
            // the 22nd field.
            let ticks: f64 = stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()?;
            Some(booted + ticks / TICKS_PER_SECOND)
        }
        _ => None,
    }
}

fn kilobytes(text: &str, line: &str) -> Option<f64> {
    number_after(text, line).map(|kilobytes| kilobytes * 1024.0)
}

/// The first number on the line with this prefix.
fn number_after(text: &str, begins: &str) -> Option<f64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(begins))?;
    rest.split_whitespace().next()?.parse().ok()
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use crate::admin::encode;

    #[test]
    fn all_of_it_is_read() {
        let mut registry = Registry::default();
        let mut book = Book::new(&mut registry);
        register(&mut book);
        let described = book.into_descriptions();
        let text = encode(&registry);
        for known in described {
            let line = text.lines().find(|line| line.starts_with(&format!("{} ", known.name)));
            let value: f64 = line.unwrap().rsplit(' ').next().unwrap().parse().unwrap();
            assert!(value > 0.0, "{line:?}");
        }
    }
}
