#!/usr/bin/env bash
# cargo.sh COMMAND…: cargo, for cargo-auditable. cargo makes the names of symbols from the path of the wrapper that
# cargo-auditable sets, so the wrapper gets a name without a path.
export RUSTC_WORKSPACE_WRAPPER=cargo-auditable
exec cargo "$@"
