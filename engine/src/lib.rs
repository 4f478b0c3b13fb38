//! The engine of Ownergraph: the pure state machines of both services.
//!
//! The engine has no clock, no I/O, no async and no logging. Facts go in, effects come out, time and seed are
//! arguments. The sequence of inputs is the trace, and the same trace gives the same effects. The engine knows neither
//! HTTP nor gRPC nor JSON. The *caller* of a machine is the code of a service around it. The caller does the I/O.
//!
//! The public modules in reading order. ARCHITECTURE.md has all modules.
//!
//! * [`time`]: instants as arguments.
//! * [`jitter`]: random numbers from a seed, and delays drawn from them.
//! * [`text`]: text from outside, without characters that act or hide.
//! * [`object`]: the state of an object.
//! * [`coverage`]: the completeness and position of each collection.
//! * [`evidence`]: proofs of an owner's absence.
//! * [`selectors`]: numbers for the label and annotation requirements of guards.
//! * [`marks`]: the numbers of the selectors that match an object.
//! * [`scope`]: the objects that a guard is about.
//! * [`guard`]: guards as their resources state them.
//! * [`hold`]: the guards in force: pauses, protections, approvals, gates and budgets.
//! * [`work`]: the messages between the services.
//! * [`pace`]: writes per second.
//! * [`plan`]: the effects of a deletion.
//! * [`view`]: values for readers.
//! * [`parity`]: comparison with another collector.
//! * [`leader`]: the graph service's machine.
//! * [`session`]: the executor's machine.
//! * [`attempt`]: the write path: all leases of one executor.
//! * [`elector`]: leader election.
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
pub mod guard;
pub mod hold;
mod index;
pub mod jitter;
mod late_writes;
pub mod leader;
mod lease;
mod lies;
pub mod marks;
pub mod object;
pub mod pace;
mod paged_vec;
pub mod parity;
pub mod plan;
mod queue;
mod recent;
pub mod scope;
pub mod selectors;
pub mod session;
pub mod text;
pub mod time;
mod timers;
mod tombstones;
mod verdict;
pub mod view;
mod words;
pub mod work;
