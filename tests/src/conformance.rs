//! What upstream's own tests ask for, asked of this collector: [`CATALOGUE`] says of each of them what covers it, [`cases`] are end
//! states that a collector has to reach, and [`requests`] are answers that an API server has to give. Cases and requests are data, and
//! run by the same code on the sandbox and on a real API server.

pub mod cases;
pub mod catalogue;
pub mod guard;
pub mod requests;
pub mod runner;
pub mod step;
pub mod world;

pub use catalogue::CATALOGUE;
