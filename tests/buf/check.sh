#!/usr/bin/env bash
# check.sh: lints the API with buf, and holds it against proto/released.binpb, the API as it was released last.
# check.sh --release: makes proto/released.binpb from the tree. It is done with a release, and at no other time: from then on clients
# rely on what it has.
set -euo pipefail
cd "$(dirname "$0")/../.."
tests/buf/build.sh target/buf
buf=$PWD/target/buf/buf
released=$PWD/proto/released.binpb

if [ "${1:-}" = --release ]; then
    # Without comments, which are not part of the contract.
    "$buf" build proto --exclude-source-info -o "$released"
    exit 0
fi

"$buf" lint proto
"$buf" breaking proto --against "$released"

# What is compared must be able to fail: a copy that lacks a field, and one in which a field has another type.
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
