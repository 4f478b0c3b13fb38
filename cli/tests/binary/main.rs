//! The program as people and scripts meet it: what it prints, with which code it ends, and that it collects.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail")]

mod access;
mod bundle;
mod collect;
mod console;
mod containers;
mod decisions;
mod demo;
mod guards;
mod hostile;
mod process;
mod questions;
mod trial;
mod usage;
mod why;
