#!/usr/bin/env bash
# build.sh DIRECTORY PROGRAM…: builds these programs of go.mod into DIRECTORY, statically, where they are missing or were built from
# something else. Several that run at once take turns. Ends with 3 and a sentence on stdout where there is no Go toolchain that can.
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

# A build from modules knows no version and would call itself v0.0.0-master.
version=$(sed -nE 's/^(require)?[[:space:]]*k8s\.io\/kubernetes v([0-9.]+).*/\2/p' "$module/go.mod")
[[ $version == *.*.* ]] || { echo "$module/go.mod requires no k8s.io/kubernetes" >&2; exit 1; }
IFS=. read -r major minor _ <<<"$version"
# Without symbols: a third of the size.
linker_flags='-s -w'
for variable in "gitVersion=v$version" "gitMajor=$major" "gitMinor=$minor"; do
    linker_flags+=" -X k8s.io/client-go/pkg/version.$variable -X k8s.io/component-base/version.$variable"
done

# Beside each program: what it was built from. As content, because a fresh checkout has fresh modification times.
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
# Asked here, where an old toolchain fetches the one that go.mod names or says that it will not.
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
    # A server that runs from the old file keeps it; a build that is interrupted leaves no half program.
    mv "$directory/$name.part" "$directory/$name"
    echo "$built_from" >"$directory/$name.built-from"
done
