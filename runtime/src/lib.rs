//! The process around a service: logging, shutdown, tasks, and probes.
//!
//! The crate knows nothing of garbage collection. From the engine it uses only the time. In reading order:
//!
//! * [`telemetry`]: the log on stderr
//! * [`traces`]: spans, and the task that sends them to a collector
//! * [`seldom`]: which log lines about foreign peers are written
//! * [`terminal`]: a status line below the log
//! * [`cause`]: the text of the innermost cause of an error
//! * [`visible`]: foreign text without terminal control characters
//! * [`shutdown`]: one value that stops all tasks
//! * [`tasks`]: the only place that spawns, so that each task has an owner
//! * [`listen`]: binds an address, with actionable errors, and answers a bounded number of connections
//! * [`tls`]: certificates, checked at the start and reloaded while the process runs
//! * [`admin`]: `/livez`, `/readyz`, `/metrics`, `/debug/graph`
//! * [`service`]: all of these around the work of one service
//! * [`version`]: the version of the programs, and their commit
//! * [`metrics`]: metrics with their descriptions; [`process`]: those of every process

pub mod admin;
pub mod cause;
pub mod clock;
pub mod host;
pub mod listen;
pub mod metrics;
pub mod process;
pub mod seldom;
pub mod service;
pub mod shutdown;
pub mod tasks;
pub mod telemetry;
pub mod terminal;
pub mod tls;
pub mod traces;
pub mod version;
pub mod visible;
