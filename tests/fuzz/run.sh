#!/usr/bin/env bash
# Searches for input with which a decoder panics, hangs (10 s), or takes too much memory (2 GiB).
#
#   tests/fuzz/run.sh SECONDS [TARGET...]   searches, for so long in each target
#   tests/fuzz/run.sh keep [TARGET...]      adds inputs that reach more code to tests/corpus
#
# Without targets, the script takes all of them one after another. A search starts from tests/corpus and from the inputs
# that earlier searches left in target/fuzz. An input that fails is in target/fuzz/TARGET-*: give it a name, put it into
# tests/corpus/TARGET, and mend the decoder.
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
    limits=(-rss_limit_mb=2048 -timeout=10 -max_len=65536 "-artifact_prefix=target/fuzz/$target-")
    export OWNERGRAPH_FUZZ_TARGET=$target
    if [ "$what" = keep ]; then
        target/release/fuzz -merge=1 "${limits[@]}" "tests/corpus/$target" "$found"
    else
        echo "== $target"
        target/release/fuzz "${limits[@]}" "-max_total_time=$what" -print_final_stats=1 -verbosity=0 "$found" "tests/corpus/$target"
    fi
done
