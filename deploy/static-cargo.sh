#!/usr/bin/env bash
# static-cargo.sh COMMAND…: runs cargo so that programs run in an empty image and are the same on every build machine:
# linked statically, and without the paths of this machine. The output is in target/<triple>/.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
triple=$(rustc -vV | sed -n 's/^host: //p')
variable=CARGO_TARGET_$(tr 'a-z-' 'A-Z_' <<<"$triple")_RUSTFLAGS
# The target is named although it is that of this machine. Otherwise the flags would apply to build scripts and
# procedural macros too, which the compiler loads as libraries.
export CARGO_BUILD_TARGET=$triple
export "$variable=-C target-feature=+crt-static"
export RUSTC_WRAPPER=$root/deploy/rustc.sh
# A fixed time for tools that record the time of a build. If it changed, every crate with C code would be rebuilt.
export SOURCE_DATE_EPOCH=0
unset RUSTFLAGS CARGO_ENCODED_RUSTFLAGS
exec cargo "$@"
