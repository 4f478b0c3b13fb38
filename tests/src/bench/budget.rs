//! The limits of the figures. Ratios matter. An absolute number depends on the machine as much as on us.

use super::Samples;
use serde_json::{Value, json};
use std::fmt;

/// The side of the limit on which a figure must stay.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Limit {
    AtMost(f64),
    AtLeast(f64),
}

/// One line of the promises.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Budget {
    /// The name in files.
    pub id: &'static str,
    pub what: &'static str,
    pub limit: Limit,
    /// The unit of the limit and of the figure, such as `× floor`.
    pub unit: &'static str,
    /// The arguments of `cargo bench` that measure the figure.
    pub command: &'static str,
    /// The meaning of the figure.
    pub meaning: &'static str,
}

macro_rules! budgets {
    ($($id:literal $command:literal $limit:ident($value:literal) $unit:literal $what:literal $meaning:literal;)*) => {
        /// All lines, in the order of the table.
        pub const BUDGETS: &[Budget] = &[$(Budget {
            id: $id, what: $what, limit: Limit::$limit($value), unit: $unit, command: $command, meaning: $meaning,
        }),*];
    };
}

budgets! {
    "requests-background" "-p tests --bench cascade" AtMost(1.02) "per object" "API requests, background"
        "DELETE, PATCH and GET by the API server's own count. Upstream reads each object before it deletes it.";
    "requests-foreground" "-p tests --bench cascade" AtMost(1.05) "per object" "API requests, foreground"
        "The same, where the owner waits for its dependents.";
    "requests-orphan" "-p tests --bench cascade" AtMost(1.05) "per object" "API requests, orphan"
        "The same, where the dependents only lose their reference.";
    "rate-floor" "-p tests --bench cascade" AtLeast(1.0) "× floor" "background cascade, objects/s"
        "Against a bare client that knows every object beforehand and sends one DELETE for each, at the same concurrency.";
    "rate-learned" "-p tests --bench cascade" AtLeast(0.95) "× fixed" "background cascade, objects/s, learned concurrency"
        "An executor without flags, which learns how many requests the API server takes well, against the best fixed number.";
    "rate-upstream" "-p tests --bench cascade" AtLeast(1.6) "× upstream" "background cascade, objects/s"
        "Against kube-controller-manager with only its collector, its client's limits lifted, its best number of workers.";
    "rate-upstream-foreground" "-p tests --bench cascade" AtLeast(1.8) "× upstream" "foreground cascade, objects/s"
        "The same, foreground, where upstream makes three requests for each object.";
    "rate-upstream-orphan" "-p tests --bench cascade" AtLeast(3.0) "× upstream" "orphaning, objects/s"
        "The same, orphan, where upstream patches all dependents of an owner at once.";
    "orphan-server-memory" "-p tests --bench cascade" AtMost(1.5) "× background" "API server's memory while we orphan"
        "The most that kube-apiserver held, against what our background cascade of as many objects costs it.";
    "cpu-upstream" "-p tests --bench cascade" AtMost(0.25) "× upstream" "collector's processor time per object"
        "All our processes together, background, against upstream's process.";
    "slow-upstream" "-p tests --bench cascade (SLOW=50)" AtLeast(1.95) "× upstream" "background cascade, each request 50 ms slower"
        "16 in flight on both sides: where requests take time instead of processor, one instead of two is a factor of two.";
    "rate-observed" "-p tests --bench cascade (OBSERVED=1)" AtLeast(0.97) "× unobserved" "background cascade, objects/s, while it is observed"
        "Each process is scraped every second and a tenth of all cascades is traced, against the same without either.";
    "latency" "-p tests --bench latency" AtMost(1.0) "× allowed" "owner gone → last of 100 dependents gone, p99"
        "On an idle cluster. Allowed are two rounds of DELETEs at the executor's concurrency, and 50 ms.";
    "fairness-namespace" "-p tests --bench fairness" AtMost(2.0) "s" "ten objects beside a cascade in another namespace"
        "From the deletion of their owner in the middle of the cascade until the last is gone. Upstream: first come, first served.";
    "fairness-root" "-p tests --bench fairness" AtMost(2.0) "s" "ten objects beside a cascade in their own namespace"
        "The same, where only the owner is another.";
    "foreground-slow-100" "-p tests --bench slow" AtMost(0.5) "× upstream" "foreground of 40 dependents, each request 0.1 s slower"
        "From the deletion of the owner until it is gone. A deletion that does not end in three minutes counts as three minutes.";
    "foreground-slow-1100" "-p tests --bench slow" AtMost(0.5) "× upstream" "foreground of 40 dependents, each request 1.1 s slower"
        "The same.";
    "foreground-slow-2000" "-p tests --bench slow" AtMost(0.5) "× upstream" "foreground of 40 dependents, each request 2 s slower"
        "The same.";
    "foreground-slow-5000" "-p tests --bench slow" AtMost(0.5) "× upstream" "foreground of 40 dependents, each request 5 s slower"
        "The same.";
    "tenants-delay" "-p tests --bench tenants" AtMost(100.0) "ms more" "three dependents beside ten objects of 20 000 references"
        "The slowest of all cascades in another namespace, against the slowest without the ten objects, which are created just before.";
    "tenants-round" "-p tests --bench tenants" AtMost(100.0) "ms" "longest round of the loop beside ten objects of 20 000 references"
        "The bound of the histogram's first bucket that holds every round.";
    "tenants-memory" "-p tests --bench tenants" AtMost(50.0) "MiB" "memory for ten objects of 20 000 references"
        "What the graph service held at most, less what it held at most before.";
    "start-reader" "-p tests --bench start" AtMost(1.2) "× bare reader" "cold start"
        "From the start of the process until it has everything, against a client that reads the same lists and does nothing with them.";
    "memory-100k" "-p tests --bench start" AtMost(60.0) "MiB" "graph-service's memory, 100 000 objects"
        "RSS once it has everything that a real API server shows.";
    "memory-1m" "-p graph-service --bench graph" AtMost(250.0) "MiB" "graph's memory, 1 000 000 objects"
        "What a generated cluster of Deployments takes in the engine.";
    "memory-10m" "-p graph-service --bench graph (OBJECTS=10000000)" AtMost(2048.0) "MiB" "graph's memory, 10 000 000 objects"
        "The same, ten times as large.";
    "bytes-per-object" "-p graph-service --bench graph" AtMost(160.0) "bytes" "graph's memory per object"
        "The same, by object.";
    "bytes-guarded" "-p graph-service --bench graph (GUARDS=200)" AtMost(168.0) "bytes" "graph's memory per object, with 200 guards"
        "The same with 200 Protections, of which half have label or annotation selectors: at most five percent over the budget of an object.";
    "batch" "-p graph-service --bench graph (OBJECTS=10000000)" AtMost(20.0) "ms" "longest batch of 1 000 events"
        "Nothing else is decided or answered meanwhile.";
    "decode" "-p graph-service --bench ingest" AtLeast(10.0) "× kube" "decoding a metadata watch event"
        "Against kube's typed JSON path.";
    "ingest" "-p graph-service --bench ingest" AtLeast(500_000.0) "events/s" "metadata watch events from a socket into the graph"
        "By the processor time of the one thread that reads, decodes and takes them in; protobuf over HTTP/1.1 in chunks of two kilobytes.";
    "lease-rate" "-p tests --bench lease" AtLeast(100_000.0) "leases/s" "lease plane"
        "Decided work that waits, granted over gRPC on loopback to executors that answer at once, until the last result is acknowledged.";
    "lease-latency" "-p tests --bench lease" AtMost(5.0) "ms" "lease plane, p99 under light load"
        "One lease at a time: from a result to the next grant, which is a grant's way and a result's way.";
    "verdicts" "-p tests --bench lease" AtLeast(10_000.0) "verdicts/s" "lease plane, with a gate about each object"
        "The same leases, each after the answer of a policy engine on a stream. The engine runs on the same machine.";
    "gate-elsewhere" "-p tests --bench lease" AtLeast(0.95) "× no gate" "lease plane, beside a gate whose engine never answers"
        "The same leases, which are not in the scope of the gate.";
    "cascade-gated" "-p tests --bench cascade (GATED=1)" AtLeast(0.97) "× no gate" "background cascade, objects/s, with a gate about roots"
        "The cascade waits until it is counted and its policy engine has answered once.";
    "rate-recorded" "-p tests --bench cascade (RECORDED=1)" AtLeast(0.97) "× unrecorded" "background cascade, objects/s, while it is recorded"
        "The graph service writes all its inputs into files, against the same without.";
    "pace-recorded" "-p tests --bench cascade (RECORDED=1)" AtLeast(0.97) "× unrecorded" "the same, at equal speed of the machine"
        "Each rate is multiplied by the API server's processor time for an object. This time differs between two runs by more than a recording costs.";
    "recording-bytes" "-p tests --bench cascade (RECORDED=1)" AtMost(100.0) "bytes" "recording of a cascade, for each input"
        "The size of the files. Inputs are events of watches, results of executors and answers.";
    "recording-replay" "-p tests --bench cascade (RECORDED=1)" AtLeast(5.0) "× recorded" "replay of a cascade"
        "The time of the cascade alone, against the time of the replay of the whole recording.";
    "ingest-guarded" "-p graph-service --bench ingest" AtLeast(0.95) "× no guard" "the same events, with 200 guards"
        "Half of them have label or annotation selectors, some about keys that most objects have.";
    "neighbour-get-saturated" "-p tests --bench neighbours" AtMost(1.0) "× floor's" "another client's GET, p99, beside a cascade at full speed"
        "Ours as it is by default, against the same beside the bare client of 64 in flight.";
    "neighbour-create-saturated" "-p tests --bench neighbours" AtMost(1.0) "× floor's" "another client's CREATE, p99, beside a cascade at full speed"
        "The same for writes.";
    "neighbour-get-held" "-p tests --bench neighbours" AtMost(2.0) "× idle" "another client's GET, p99, beside a cascade at half its speed"
        "Ours with --max-writes-per-second at half of what it does with 64 in flight, against the same server without a cascade.";
    "neighbour-create-held" "-p tests --bench neighbours" AtMost(2.0) "× idle" "another client's CREATE, p99, beside a cascade at half its speed"
        "The same for writes.";
    "neighbour-get-paced" "-p tests --bench neighbours" AtMost(1.0) "× floor's" "another client's GET, p99, beside a cascade at half its speed"
        "The same, against the bare client held to as many DELETEs a second. Not in the design's table: it shows what of the line above is the server's.";
    "neighbour-create-paced" "-p tests --bench neighbours" AtMost(1.0) "× floor's" "another client's CREATE, p99, beside a cascade at half its speed"
        "The same for writes.";
}

/// Returns the budget with that name.
///
/// # Panics
/// The budget does not exist. The names are our own.
pub fn budget(id: &str) -> &'static Budget {
    BUDGETS.iter().find(|budget| budget.id == id).expect("figures are named after budgets")
}

impl Limit {
    /// Returns whether a figure stays within its limit.
    pub fn holds(self, figure: f64) -> bool {
        match self {
            Limit::AtMost(most) => figure <= most,
            Limit::AtLeast(least) => figure >= least,
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Limit::AtMost(most) => write!(f, "≤ {most}"),
            Limit::AtLeast(least) => write!(f, "≥ {least}"),
        }
    }
}

/// The result for one line.
#[derive(Clone, Debug)]
pub struct Figure {
    pub budget: &'static Budget,
    pub samples: Samples,
}

impl Figure {
    /// Returns the figure for an existing budget.
    pub fn new(id: &str, samples: Samples) -> Figure {
        Figure { budget: budget(id), samples }
    }

    /// Returns whether the median keeps the promise.
    pub fn holds(&self) -> bool {
        self.budget.limit.holds(self.samples.median())
    }

    /// Returns the figure for the report of a benchmark.
    pub fn json(&self) -> Value {
        let mut json = self.samples.json();
        json["budget"] = self.budget.id.into();
        json!(json)
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Budget { what, limit, unit, .. } = self.budget;
        let verdict = if self.holds() { "as promised" } else { "SHORT" };
        write!(f, "{what:<64} {:<24} {unit:<14} budget {limit:<9} {verdict}", self.samples.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::{BUDGETS, Figure, Limit, budget};

    #[test]
    fn each_line_has_a_name_of_its_own() {
        for line in BUDGETS {
            assert_eq!(budget(line.id), line);
        }
    }

    #[test]
    fn a_figure_is_on_one_side_or_the_other() {
        assert!(Limit::AtMost(2.0).holds(2.0) && !Limit::AtMost(2.0).holds(2.1));
        assert!(Limit::AtLeast(2.0).holds(2.0) && !Limit::AtLeast(2.0).holds(f64::NAN));
        let figure = Figure::new("rate-floor", [0.9].into_iter().collect());
        assert!(figure.to_string().ends_with("SHORT"), "{figure}");
        assert_eq!(figure.json()["budget"], "rate-floor");
    }
}
