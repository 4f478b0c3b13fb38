//! One of `tests::fuzz::TARGETS` under libFuzzer; `OWNERGRAPH_FUZZ_TARGET` says which.

#![no_main]

use libfuzzer_sys::fuzz_target;
use std::io::Write as _;
use std::sync::LazyLock;
use tests::fuzz::{TARGETS, Target};

static TARGET: LazyLock<Target> = LazyLock::new(|| {
    // libFuzzer's own hook aborts at every panic, also at those of foreign parsers that the code under test catches.
    // What is not caught ends the process nevertheless.
    std::panic::set_hook(Box::new(|panic| {
        let _closed = writeln!(std::io::stderr(), "{panic}");
    }));
    let name = std::env::var("OWNERGRAPH_FUZZ_TARGET").unwrap_or_default();
    let names = TARGETS.map(|target| target.name).join(", ");
    Target::named(&name).unwrap_or_else(|| panic!("OWNERGRAPH_FUZZ_TARGET={name:?} is none of {names}"))
});

fuzz_target!(|bytes: &[u8]| (TARGET.read)(bytes));
