//! The tests that need other programs, such as a control plane or a NATS server, and do not depend on their speed. They
//! run side by side, because a test mostly waits.

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
