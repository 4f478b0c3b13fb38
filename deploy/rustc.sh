#!/usr/bin/env bash
# rustc.sh COMMAND…: runs the compiler for cargo (RUSTC_WRAPPER), and keeps the paths of this machine out of the programs.
# Flags of cargo would keep them out too, but cargo makes the names of symbols and directories from flags, so the bytes
# would still depend on the paths.
root=$(cd "$(dirname "$0")/.." && pwd)
exec "$@" --remap-path-prefix="$root=/ownergraph" --remap-path-prefix="${CARGO_HOME:-$HOME/.cargo}=/cargo"
