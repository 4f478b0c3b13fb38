#!/usr/bin/env bash
# tests/benches/all.sh DIR: runs every benchmark of docs/performance.md, one after another. This takes an hour and a
# half on two cores. Each benchmark writes a file to DIR. The script leaves out benchmarks whose file exists, so an
# interrupted run can continue. The machine must be otherwise idle. Afterwards, run: cargo run -p tests --bin
# performance -- DIR
set -euo pipefail

[ $# = 1 ] || { echo "usage: tests/benches/all.sh DIR" >&2; exit 2; }
mkdir -p "$1"
directory=$(cd "$1" && pwd)
cd "$(dirname "$0")/../.."

# NAME PACKAGE BENCH [SETTING...]
measure() {
    local file=$directory/$1.json package=$2 bench=$3
    shift 3
    [ -e "$file" ] && return
    printf '== %s %s (%ss)\n' "$bench" "$*" "$SECONDS" >&2
    # Only a complete run leaves a file of this name.
    env "$@" JSON="$file.part" cargo bench --quiet -p "$package" --bench "$bench"
    mv "$file.part" "$file"
}

measure lease tests lease
measure start tests start
measure ingest graph-service ingest
measure graph-1m graph-service graph
measure graph-guarded graph-service graph GUARDS=200
measure graph-10m graph-service graph OBJECTS=10000000
measure cascade tests cascade IN_FLIGHT=64
measure cascade-slow tests cascade POLICIES=Background OBJECTS=2000 SLOW=50
measure latency tests latency ROUNDS=2
measure latency-8 tests latency IN_FLIGHT=8 ROUNDS=2
measure cascade-large tests cascade POLICIES=Background IN_FLIGHT=64 OBJECTS=100000 ROUNDS=1
measure fairness tests fairness ROUNDS=1
measure neighbours tests neighbours ROUNDS=1
measure slow tests slow
measure tenants tests tenants
measure readers tests readers
measure cascade-gated tests cascade POLICIES=Background IN_FLIGHT=64 GATED=1 OBJECTS=100000
measure cascade-recorded tests cascade POLICIES=Background IN_FLIGHT=64 RECORDED=1 OBJECTS=100000
measure cascade-observed tests cascade POLICIES=Background IN_FLIGHT=64 OBSERVED=1 ROUNDS=5
