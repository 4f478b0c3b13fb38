#!/usr/bin/env bash
# Plants one bug after another in a copy of the tree, and lets the simulation search for it.
#
#   tests/planted/run.sh [NAME...]
#
# Without names, the script first runs the tree without a bug, where the simulation must find nothing, and then all
# bugs.
#
# Each *.patch is one bug, and its file name is the name of the bug. One build contains all bugs. A switch that only the
# copy has (switch.diff) selects one: PLANTED names the active bug. unit.txt lists the bugs that the simulation cannot
# reach, each with the test that finds it. The script runs this test with the bug, and the test must fail. SECONDS_EACH
# (600) is the maximum time for one bug. DIR is the place of the copy. PERILS is as in `sim`. The exit status is 1 if
# the simulation missed a bug, or found a violation without a bug.
set -euo pipefail
. "$(dirname "$0")/tree.sh"
each=${SECONDS_EACH:-600}
# The build has assertions, because they find bugs too.
(cd "$dir/tree" && CARGO_PROFILE_DEV_OPT_LEVEL=${OPT_LEVEL:-2} CARGO_TARGET_DIR="$dir" \
    cargo build --quiet -p tests --bin sim)

names=("$@")
if [ ${#names[@]} -eq 0 ]; then
    names=("")
    for patch in "$here"/*.patch; do names+=("$(basename "$patch" .patch)"); done
fi
failed=0
printf '%-52s %7s %7s %10s %8s  %s\n' bug seconds worlds steps seed violation
for name in "${names[@]}"; do
    if read -r _ package test < <(grep -s "^$name " "$here/unit.txt"); then
        log=$(mktemp)
        began=$(date +%s)
        (cd "$dir/tree" && PLANTED=$name CARGO_TARGET_DIR="$dir" cargo test --quiet -p "$package" --lib "$test") > "$log" 2>&1 || true
        why="not found by $test"
        if grep -q '^test result: FAILED' "$log"; then why="unit test $test"; else failed=1; fi
        printf '%-52s %7s %7s %10s %8s  %s\n' "$name" $(($(date +%s) - began)) - - - "$why"
        rm -f "$log"
        continue
    fi
    # The search ends with an error when it finds a violation, and prints no counts when it is cut. Both are results.
    log=$(mktemp)
    began=$(date +%s)
    PLANTED=$name NOSHRINK=1 timeout $((each + 120)) "$dir/debug/sim" --seconds "$each" --threads 1 \
        > "$log" 2>&1 || true
    took=$(($(date +%s) - began))
    seed=$(sed -n 's/^replay with SEED=//p' "$log")
    worlds=? steps=?
    read -r worlds steps < <(sed -n 's/^\([0-9]*\) worlds, \([0-9]*\) steps,.*/\1 \2/p' "$log") || true
    why=$(sed -n '/^}$/,/^replay with SEED=/p' "$log" | sed -n 2,3p | tr '\n' ' ' | cut -c1-140)
    printf '%-52s %7s %7s %10s %8s  %s\n' "${name:-(none)}" "$took" "$worlds" "$steps" "${seed:--}" "${why:-not found}"
    found=${seed:+yes} planted=${name:+yes}
    if [ "$found" != "$planted" ]; then failed=1; fi
    rm -f "$log"
done
exit $failed
