//! `ownergraph`. All of it is in the library, so that tests reach it.

use std::process::ExitCode;

/// Decisions are many small things that live for very different times, which breaks the C library's heap into pieces.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    cli::main()
}
