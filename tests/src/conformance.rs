//! Upstream's own tests, applied to this collector. [`CATALOGUE`] says what covers each of them. [`cases`] are end
//! states that a collector must reach. [`requests`] are answers that an API server must give. Cases and requests are
//! data. The same code runs them on the sandbox and on a real API server.

pub mod cases;
pub mod catalogue;
pub mod guard;
pub mod requests;
pub mod runner;
pub mod step;
pub mod world;

pub use catalogue::CATALOGUE;
