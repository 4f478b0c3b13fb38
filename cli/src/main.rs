//! `ownergraph`. All code is in the library, so that tests can call it.

use std::process::ExitCode;

/// The allocator. Decisions are many small objects with different lifetimes, which fragment the heap of the C library.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    cli::main()
}
