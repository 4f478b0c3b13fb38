#!/usr/bin/env bash
# build.sh DIRECTORY PROGRAM…: builds these programs of go.mod into DIRECTORY, statically, if they are missing or were
# built from other sources. Runs at the same time take turns. Without a suitable Go toolchain, the script prints one
# sentence on stdout and ends with exit code 3.
set -euo pipefail
module=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
directory=$(cd "$1" && pwd)
shift

package() {
    case $1 in
    etcd) echo go.etcd.io/etcd/server/v3 ;;
    kube-apiserver | kube-controller-manager | kubectl) echo "k8s.io/kubernetes/cmd/$1" ;;
    *) echo "$1 is none of etcd, kube-apiserver, kube-controller-manager and kubectl" >&2; return 1 ;;
    esac
}

# A program that is built from modules does not know its version, and would report v0.0.0-master.
version=$(sed -nE 's/^(require)?[[:space:]]*k8s\.io\/kubernetes v([0-9.]+).*/\2/p' "$module/go.mod")
[[ $version == *.*.* ]] || { echo "$module/go.mod requires no k8s.io/kubernetes" >&2; exit 1; }
IFS=. read -r major minor _ <<<"$version"
# Symbols are left out, which makes the programs three times smaller.
linker_flags='-s -w'
for variable in "gitVersion=v$version" "gitMajor=$major" "gitMinor=$minor"; do
    linker_flags+=" -X k8s.io/client-go/pkg/version.$variable -X k8s.io/component-base/version.$variable"
done

# A file beside each program holds its sources. Modification times do not serve: a new checkout has new ones.
built_from=$(cat "$0" "$module/go.mod" "$module/go.sum" | sha256sum)

exec 9>"$directory/lock"
flock 9
missing=()
for name in "$@"; do
    package "$name" >/dev/null
    if [ ! -x "$directory/$name" ] || [ "$(cat "$directory/$name.built-from" 2>/dev/null)" != "$built_from" ]; then missing+=("$name"); fi
done
[ ${#missing[@]} -gt 0 ] || exit 0

cd "$module"
# In this directory an old toolchain fetches the one that go.mod names, or says that it does not.
if ! said=$(go version 2>&1); then
    echo "\`go version\`: $said; a real Kubernetes API server is built here, with the Go toolchain that tests/controlplane/go.mod names"
    exit 3
fi
log=$directory/build.log
echo "building the control plane (minutes, the first time); output in $log" >&2
: >"$log"
for name in "${missing[@]}"; do
    if ! CGO_ENABLED=0 go build -trimpath -ldflags "$linker_flags" -o "$directory/$name.part" "$(package "$name")" >>"$log" 2>&1; then
        echo "go build of $name failed; end of $log:" >&2
        tail -n 20 "$log" >&2
        exit 1
    fi
    # A running server keeps the old file. An interrupted build leaves no incomplete program.
    mv "$directory/$name.part" "$directory/$name"
    echo "$built_from" >"$directory/$name.built-from"
done
