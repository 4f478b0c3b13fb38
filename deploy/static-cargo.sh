#!/usr/bin/env bash
# static-cargo.sh COMMAND…: cargo with what makes programs that run in an empty image, and that are the same wherever they are built:
# linked statically, and without the paths of this machine. They are in target/<triple>/.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
triple=$(rustc -vV | sed -n 's/^host: //p')
variable=CARGO_TARGET_$(tr 'a-z-' 'A-Z_' <<<"$triple")_RUSTFLAGS
# Named as a target, although it is this machine's own: otherwise the flags would hold for build scripts and procedural macros too, which
# the compiler loads as libraries.
export CARGO_BUILD_TARGET=$triple
export "$variable=-C target-feature=+crt-static --remap-path-prefix=$root=/ownergraph --remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=/cargo"
# One time for whatever writes down when it was built, and always the same one: at a change of it everything that holds C is built anew.
export SOURCE_DATE_EPOCH=0
unset RUSTFLAGS CARGO_ENCODED_RUSTFLAGS
exec cargo "$@"
