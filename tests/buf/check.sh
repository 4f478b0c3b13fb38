#!/usr/bin/env bash
# check.sh: lints the API with buf, and compares it with proto/released.binpb, the API of the last release.
# check.sh --release: writes proto/released.binpb from the tree. Only a release does this, because clients then rely on
# the content.
set -euo pipefail
cd "$(dirname "$0")/../.."
tests/buf/build.sh target/buf
buf=$PWD/target/buf/buf
released=$PWD/proto/released.binpb

if [ "${1:-}" = --release ]; then
    # Comments are left out, because they are not part of the contract.
    "$buf" build proto --exclude-source-info -o "$released"
    exit 0
fi

"$buf" lint proto
"$buf" breaking proto --against "$released"

# The comparison must be able to fail: one copy lacks a field, and in another a field has another type.
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
refused() {
    local what=$1 expression=$2
    rm -rf "$copy/proto"
    mkdir "$copy/proto"
    cp -r proto/buf.yaml proto/google proto/ownergraph "$copy/proto"
    local file=$copy/proto/ownergraph/admin/v1beta1/admin_service.proto
    sed -i "$expression" "$file"
    if cmp -s "$file" proto/ownergraph/admin/v1beta1/admin_service.proto; then
        echo "tests/buf/check.sh: $what changes nothing in admin_service.proto; mend the expression" >&2
        exit 1
    fi
    if "$buf" breaking "$copy/proto" --against "$released" >"$copy/said" 2>&1; then
        echo "buf breaking takes $what for harmless" >&2
        exit 1
    fi
    grep -q 'more_obstacles' "$copy/said" || { cat "$copy/said" >&2; exit 1; }
}
refused "a field that is removed" '/more_obstacles = 32/d'
refused "a field of another type" 's/uint64 more_obstacles = 32/string more_obstacles = 32/'
echo "the API passes buf lint, and breaks nothing that was released"
