#!/usr/bin/env bash
# console.sh [anew | check]: builds the page of the console into console/dist if it is missing, and with an argument in
# any case. With `check`, its checks and tests follow, and the Headlamp plug-in with Headlamp's own build and type check.
# The build of the command line puts the page into the program.
#
# The page needs npm and Node 20.19 or later. Where the installed Node is older, npx runs a newer one.
set -euo pipefail
cd "$(dirname "$0")/../console"

fail() { echo "deploy/console.sh: $*" >&2; exit 1; }

case ${1:-} in
'') [ ! -e dist/index.html ] || exit 0 ;;
anew | check) ;;
*) fail "usage: deploy/console.sh [anew | check]" ;;
esac
for tool in node npm npx; do
    command -v "$tool" >/dev/null || fail "$tool is missing, which builds the page of the console; apt-get install nodejs npm"
done
recent=$(node -p 'const [a, b] = process.versions.node.split("."); a > 20 || (a == 20 && b >= 19)')
run() { if [ "$recent" = true ]; then "$@"; else npx --yes --package=node@22 -- "$@"; fi; }
rm -rf dist
{ run npm ci --no-audit --no-fund && run npm run build; } >&2 || fail "the page of the console was not built"
[ "${1:-}" = check ] || exit 0
# The packages of the plug-in take a minute, mostly of the network.
(cd headlamp-plugin && run npm ci --no-audit --no-fund) &
for part in check test; do run npm run "$part"; done
wait $!
run npm run browser
cd headlamp-plugin
for part in build check; do run npm run "$part"; done
