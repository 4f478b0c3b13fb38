//! The flags that say how many items are under way at once, the same for every program with executors in it.

use clap::Args;
use engine::session::Concurrency;

/// Most that can be asked for.
const MOST: i64 = 1024;
/// What keeps an API server on two cores busy.
const FIXED: u32 = 16;
/// The bound where the API server decides.
const ADAPTIVE_MAX: u32 = 64;

/// How many items an executor has under way at once.
#[derive(Clone, Copy, Debug, Args)]
pub struct ConcurrencyOptions {
    /// Items under way at once in an executor, however the API server answers; without it as many as it answers without making them wait.
    #[arg(
        long,
        env = "OWNERGRAPH_CONCURRENCY",
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=MOST)
    )]
    concurrency: Option<u32>,

    /// Most items under way at once in an executor where --concurrency is not given.
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
    /// For a server that nobody else waits for.
    pub const ALONE: Concurrency = Concurrency::Fixed(FIXED);

    /// What the flags say.
    pub fn concurrency(self) -> Concurrency {
        self.concurrency.map_or(Concurrency::Adaptive { max: self.max_concurrency }, Concurrency::Fixed)
    }
}
