//! The tests that need other programs, such as a control plane or a NATS server, and do not depend on how fast these are. They run side by
//! side: most of a test is waiting.

mod access;
mod bad_input;
mod chart;
mod conformance;
mod containers;
mod controlplane;
mod differential;
mod encodings;
mod flowcontrol;
mod freshness;
mod fuzz;
mod kubectl;
mod metrics;
mod observe;
mod previews;
mod reference;
mod scenarios;
mod subscribers;
mod traces;
mod upgrade;
mod wire;
