//! The mind of Ownergraph: pure state machines of both halves of the collector.
//!
//! No clock, no I/O, no async, no logging: facts go in, effects come out, time and seed are arguments. The sequence of inputs is the
//! trace, and the same trace gives the same effects. Nothing here knows HTTP, gRPC or JSON.
//!
//! Modules in reading order:
//!
//! * [`time`]: instants as arguments.
//! * [`jitter`]: randomness from a seed, and the waits drawn from it.
//! * [`object`]: what is known of an object.
//! * [`coverage`]: which collections are complete up to which position.
//! * [`evidence`]: why an owner is believed absent.
//! * [`hold`]: what keeps decided work from being granted.
//! * [`work`]: what the two halves say to each other.
//! * [`pace`]: writes per second.
//! * [`view`]: what readers see.
//! * [`leader`]: the graph service's machine.
//! * [`session`]: the executor's machine.
//! * [`attempt`]: the write path, one lease at a time.
//! * [`elector`]: Lease in, term out.
//! * [`follow`]: one collection's list and watch.
#![no_std]

extern crate alloc;

pub mod attempt;
mod barrier;
mod changes;
mod containers;
pub mod coverage;
mod decision;
pub mod elector;
pub mod evidence;
pub mod follow;
mod graph;
pub mod hold;
mod index;
pub mod jitter;
mod late_writes;
pub mod leader;
mod lease;
mod lies;
pub mod object;
pub mod pace;
mod paged_vec;
pub mod plan;
mod queue;
mod recent;
pub mod session;
pub mod time;
mod timers;
mod tombstones;
mod verdict;
pub mod view;
pub mod work;
