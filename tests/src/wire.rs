//! Both services in one process, with their real clients over pipes in memory, on a clock that only moves when every
//! task is idle.
//!
//! * [`network`]: addresses, and pipes between them that can be broken or frozen
//! * [`world`]: the sandbox, replicas of the graph service and executors on that network
//! * [`relay`]: stands before a replica, writes down every message, and breaks streams at any of them
//! * [`puppet`]: an executor that does what a test tells it
//! * [`raw`]: messages as bytes
//! * [`frames`]: HTTP/2 without a library, to see what the libraries send and to send what they would not

pub mod frames;
pub mod network;
pub mod puppet;
pub mod raw;
pub mod relay;
pub mod world;
