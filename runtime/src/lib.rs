//! The process around a service: how it logs, stops, keeps its tasks, and answers probes.
//!
//! Knows nothing of garbage collection: of the engine it takes the generator of random numbers. In reading order:
//!
//! * [`telemetry`]: the log on stderr
//! * [`traces`]: spans, and the task that sends them to a collector
//! * [`terminal`]: a line below it, that is rewritten
//! * [`visible`]: text that others wrote, without what acts on a terminal
//! * [`shutdown`]: one value, passed down, that says "stop"
//! * [`tasks`]: the one place that spawns; no task dies unseen
//! * [`listen`]: binding an address, with an error a person can act on
//! * [`tls`]: certificates, checked at the start and swapped while the process runs
//! * [`admin`]: `/livez`, `/readyz`, `/metrics`, `/debug/graph`
//! * [`metrics`]: metrics with their descriptions; [`process`]: those of every process

pub mod admin;
pub mod clock;
pub mod host;
pub mod listen;
pub mod metrics;
pub mod process;
pub mod shutdown;
pub mod tasks;
pub mod telemetry;
pub mod terminal;
pub mod tls;
pub mod traces;
pub mod visible;
