#!/usr/bin/env bash
# build.sh: builds the documentation site in target/site: the book with its search, and the manual pages in
# target/site/man. A broken link is an error here. A page that SUMMARY.md lacks is an error in tests/tests/tidy.
set -euo pipefail
cd "$(dirname "$0")/.."
mdbook=0.5.4
target=${CARGO_TARGET_DIR:-target}
tools=$(mkdir -p "$target/tools" && cd "$target/tools" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

[ -x "$tools/mdbook-$mdbook/bin/mdbook" ] || {
    cargo install --quiet --locked --debug --no-default-features --features search --version "=$mdbook" \
        --root "$tools/mdbook-$mdbook" --target-dir "$work/mdbook" mdbook
}
# A test among the targets gives dependencies the features of `cargo test --workspace`, so they are not compiled again.
cargo build --quiet --locked --workspace --bins --test tidy

rm -rf "$target/site"
python3 docs/site.py lay "$work/book"
"$tools/mdbook-$mdbook/bin/mdbook" build --dest-dir "$work/site" "$work/book" >"$work/said" 2>&1 || { cat "$work/said" >&2; exit 1; }
if grep -E 'WARN|ERROR' "$work/said" >&2; then exit 1; fi
python3 docs/site.py check "$work/site"

# The check must be able to fail: once without a page, and once without an anchor.
refused() {
    local copy=$work/$1 says=$2
    cp -r "$work/site" "$copy"
    "$1" "$copy"
    if python3 docs/site.py check "$copy" >"$work/said" 2>&1; then
        echo "docs/site.py check takes the site $1 for whole" >&2
        exit 1
    fi
    grep -q "$says" "$work/said" || { cat "$work/said" >&2; exit 1; }
}
without_a_page() { rm "$1/docs/rbac.html"; }
without_an_anchor() { sed -i 's/id="before-images"/id="images"/' "$1/docs/install.html"; }
refused without_a_page 'docs/access.html: rbac.html leads nowhere'
refused without_an_anchor 'install.html#before-images leads nowhere'

mkdir -p "$target"
cp -r "$work/site" "$target/site"
"$target/debug/ownergraph" man "$target/site/man"
echo "$target/site"
