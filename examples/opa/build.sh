#!/usr/bin/env bash
# build.sh DIRECTORY: builds OPA of go.mod into DIRECTORY, where it is missing or was built from something else. Several that run at once
# take turns.
set -euo pipefail
module=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
directory=$(cd "$1" && pwd)

# Beside the program: what it was built from. As content, because a fresh checkout has fresh modification times.
built_from=$(cat "$0" "$module/go.mod" "$module/go.sum" | sha256sum)

exec 9>"$directory/lock"
flock 9
if [ -x "$directory/opa" ] && [ "$(cat "$directory/opa.built-from" 2>/dev/null)" = "$built_from" ]; then exit 0; fi

cd "$module"
log=$directory/build.log
echo "building OPA (two minutes, the first time); output in $log" >&2
if ! CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o "$directory/opa.part" github.com/open-policy-agent/opa >"$log" 2>&1; then
    echo "go build of OPA failed; end of $log:" >&2
    tail -n 20 "$log" >&2
    exit 1
fi
# A build that is interrupted leaves no half program.
mv "$directory/opa.part" "$directory/opa"
echo "$built_from" >"$directory/opa.built-from"
