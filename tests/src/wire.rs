//! Both services in one process. Their real clients use pipes in memory. The clock moves only when every task is idle.
//!
//! * [`network`]: addresses, and pipes between them that a test can break or freeze
//! * [`world`]: the sandbox, replicas of the graph service, and executors on that network
//! * [`relay`]: records every message to and from a replica, and breaks streams at any message
//! * [`puppet`]: an executor that a test controls
//! * [`raw`]: messages as bytes
//! * [`frames`]: HTTP/2 without a library, to see the frames of the libraries and to send frames that they would not
//!   send

pub mod frames;
pub mod network;
pub mod puppet;
pub mod raw;
pub mod relay;
pub mod world;
