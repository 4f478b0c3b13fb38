#!/usr/bin/env bash
# Looks for bytes that make a reader of foreign bytes panic, hang (10 s) or take too much memory (2 GiB): tests/fuzz/run.sh SECONDS [TARGET...]
# Without targets, all of them one after the other. Begins with tests/corpus and with what earlier runs found, in target/fuzz. An input
# that breaks something is left in target/fuzz/TARGET-*; give it a name, put it into tests/corpus/TARGET and mend what it breaks.
# tests/fuzz/run.sh keep [TARGET...] adds to tests/corpus what reaches more code than it does.
set -euo pipefail
cd "$(dirname "$0")/../.."

what=${1:?"how many seconds for each target, or keep"}
shift
RUSTC_WORKSPACE_WRAPPER=$PWD/tests/fuzz/instrument.sh cargo build --release --package fuzz --features libfuzzer
targets=("$@")
[ ${#targets[@]} -gt 0 ] || mapfile -t targets < <(ls tests/corpus)

for target in "${targets[@]}"; do
    found=target/fuzz/$target
    mkdir -p "$found"
    limits=(-rss_limit_mb=2048 -timeout=10 -max_len=16384 "-artifact_prefix=target/fuzz/$target-")
    export OWNERGRAPH_FUZZ_TARGET=$target
    if [ "$what" = keep ]; then
        target/release/fuzz -merge=1 "${limits[@]}" "tests/corpus/$target" "$found"
    else
        echo "== $target"
        target/release/fuzz "${limits[@]}" "-max_total_time=$what" -print_final_stats=1 -verbosity=0 "$found" "tests/corpus/$target"
    fi
done
