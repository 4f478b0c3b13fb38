//! The flags for the number of items in progress. All programs with executors share them. Upstream's counterpart is
//! `--concurrent-gc-syncs`.

use clap::Args;
use engine::session::Concurrency;

/// Maximum value of both flags.
const MOST: i64 = 1024;
/// Default for a fixed number. It keeps an API server on two cores busy.
const FIXED: u32 = 16;
/// Default bound of adaptive concurrency.
const ADAPTIVE_MAX: u32 = 64;

/// The number of items that an executor has in progress at once.
#[derive(Clone, Copy, Debug, Args)]
pub struct ConcurrencyOptions {
    /// Items in progress at once in each executor, regardless of the API server's answers. Default: each executor
    /// adapts the number, so that requests do not wait at the API server.
    #[arg(
        long,
        env = "OWNERGRAPH_CONCURRENCY",
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=MOST)
    )]
    concurrency: Option<u32>,

    /// Maximum number of items in progress at once in each executor, if --concurrency is not set.
    #[arg(
        long,
        env = "OWNERGRAPH_MAX_CONCURRENCY",
        value_name = "N",
        default_value_t = ADAPTIVE_MAX,
        value_parser = clap::value_parser!(u32).range(1..=MOST)
    )]
    max_concurrency: u32,
}

impl ConcurrencyOptions {
    /// The value for an API server without other clients.
    pub const ALONE: Concurrency = Concurrency::Fixed(FIXED);

    /// The value of the flags.
    pub fn concurrency(self) -> Concurrency {
        self.concurrency.map_or(Concurrency::Adaptive { max: self.max_concurrency }, Concurrency::Fixed)
    }
}
