#!/usr/bin/env bash
# Plants bugs in a collector that observes beside upstream's, and waits for the disagreements.
#
#   tests/planted/beside.sh [NAME...]
#
# Without names, the script tries the bugs below. The test of `tests/tests/parity.rs` fails if a bug shows no disagreement
# of unknown class within a minute. It needs the control plane of `tests/src/controlplane.rs`. DIR is as in `run.sh`.
set -euo pipefail
. "$(dirname "$0")/tree.sh"
if [ $# -eq 0 ]; then
    set -- one-absent-owner-is-enough a-404-of-a-collection-is-an-absence an-orphaning-owner-deletes \
        own-orphan-finalizer-is-overlooked
fi
# The control plane is built once for all trees.
ln -sfn "$root/target/controlplane" "$dir/controlplane"
test="cargo test --quiet -p tests --test together"
(cd "$dir/tree" && CARGO_TARGET_DIR="$dir" $test --no-run)
failed=0
for name in "$@"; do
    began=$(date +%s)
    log=$dir/$name.log
    found=yes
    (cd "$dir/tree" && PLANTED=$name CARGO_TARGET_DIR="$dir" \
        $test -- parity::planted --nocapture) > "$log" 2>&1 || found=no
    grep -q '^planted:' "$log" || found=no
    printf '%-44s %4s s  %s\n' "$name" $(($(date +%s) - began)) "$(sed -n 's/^planted: //p' "$log" | head -1)"
    if [ $found = no ]; then
        tail -20 "$log" >&2
        failed=1
    fi
done
exit $failed
