#!/usr/bin/env bash
# build.sh DIRECTORY: builds the buf of go.mod into DIRECTORY if it is missing or was built from other sources. Runs at
# the same time take turns.
set -euo pipefail
module=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
directory=$(cd "$1" && pwd)

# A file beside the program holds its sources. Modification times do not serve: a new checkout has new ones.
built_from=$(cat "$0" "$module/go.mod" "$module/go.sum" | sha256sum)

exec 9>"$directory/lock"
flock 9
if [ -x "$directory/buf" ] && [ "$(cat "$directory/buf.built-from" 2>/dev/null)" = "$built_from" ]; then exit 0; fi

cd "$module"
log=$directory/build.log
echo "building buf (a minute, the first time); output in $log" >&2
if ! CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o "$directory/buf.part" github.com/bufbuild/buf/cmd/buf >"$log" 2>&1; then
    echo "go build of buf failed; end of $log:" >&2
    tail -n 20 "$log" >&2
    exit 1
fi
# An interrupted build leaves no incomplete program.
mv "$directory/buf.part" "$directory/buf"
echo "$built_from" >"$directory/buf.built-from"
