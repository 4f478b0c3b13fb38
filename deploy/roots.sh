#!/usr/bin/env bash
# roots.sh DIRECTORY NAME…: builds the contents of the named images. DIRECTORY/base is the common layer, DIRECTORY/NAME
# the layer of one image.
#
# Ownergraph's programs are graph-service, executor-service and ownergraph. They are linked statically, and have a list
# of their inputs (CycloneDX) at /sbom.cdx.json. The other programs are only for docker-compose.yaml: etcd,
# kube-apiserver and kubectl are built from their Go modules; nats-server and prometheus are Debian's.
#
# Ownergraph's programs are built, unless PROGRAMS names a directory with them, and LISTS one with their inputs. The
# image ownergraph has the page of the console in its program: console.sh builds it if it is missing.
set -euo pipefail
mkdir -p "$1"
roots=$(cd "$1" && pwd)
shift
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}
user=65532

fail() { echo "deploy/roots.sh: $*" >&2; exit 1; }

need() { command -v "$1" >/dev/null || fail "$1 is missing; $2"; }

# Finds a program of a Debian package. If the package is not installed, unpacks it without installing it.
debian() {
    local package=$1 path=$2 into=$target/debian
    if [ -x "$path" ]; then echo "$path"; return; fi
    need apt-get "$package is taken from Debian's package: run this on Debian, or one of its children"
    mkdir -p "$into"
    (
        cd "$into"
        rm -rf "$package" "$package"_*.deb
        { apt-get download -q "$package" || { apt-get update -q && apt-get download -q "$package"; }; } >&2
        dpkg-deb -x "$package"_*.deb "$package"
    ) || fail "apt-get cannot download Debian's package $package; run apt-get update"
    echo "$into/$package$path"
}

# The contents of every image: its user, name resolution, certificate authorities, and the health check.
base() {
    local root=$roots/base
    rm -rf "$root"
    mkdir -p "$root/etc/ssl/certs"
    echo "ownergraph:x:$user:$user::/:/nonexistent" >"$root/etc/passwd"
    echo "ownergraph:x:$user:" >"$root/etc/group"
    echo 'hosts: files dns' >"$root/etc/nsswitch.conf"
    cp -L /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
    cp "$programs/healthcheck" "$lists/healthcheck.cdx.json" "$root/"
}

# A single program. The programs that are built here link to no library that an image lacks.
place() {
    local root=$roots/$1 program=$2 interpreter
    interpreter=$(readelf --program-headers --wide "$program" | sed -n 's/.*interpreter: \(.*\)]/\1/p')
    [ -z "$interpreter" ] || fail "$program is not linked statically: it asks for $interpreter"
    rm -rf "$root"
    mkdir -p "$root"
    cp -L "$program" "$root/$1"
}

# A program of Debian, with the libraries that it links to.
place_linked() {
    local root=$roots/$1 program=$2 libraries library
    libraries=$(ldd "$program" | grep -o '/[^ ]*') || fail "ldd $program names no libraries"
    rm -rf "$root"
    mkdir -p "$root"
    cp -L "$program" "$root/$1"
    for library in $libraries; do
        mkdir -p "$root$(dirname "$library")"
        cp -L "$library" "$root$library"
    done
}

need cargo "see https://rustup.rs"
need readelf "apt-get install binutils"
[ -r /etc/ssl/certs/ca-certificates.crt ] || fail "/etc/ssl/certs/ca-certificates.crt is missing; apt-get install ca-certificates"
control_plane=()
for name in "$@"; do
    case $name in
    graph-service | executor-service | ownergraph | nats-server | prometheus) ;;
    etcd | kube-apiserver | kubectl) control_plane+=("$name") ;;
    *) fail "no image is called $name" ;;
    esac
done

# Builds all programs at once, even if only some are wanted. A program that is built alone has its dependencies rebuilt
# with fewer features.
if [ -z "${PROGRAMS:-}" ]; then
    case " $* " in *' ownergraph '*) deploy/console.sh ;; esac
    deploy/static-cargo.sh build --profile dist --locked -p cli -p executor-service -p graph-service -p healthcheck \
        --bin ownergraph --bin executor-service --bin graph-service --bin healthcheck
    PROGRAMS=$target/$(rustc -vV | sed -n 's/^host: //p')/dist
    LISTS=$target/sbom
    deploy/sbom.sh "$LISTS"
fi
programs=$PROGRAMS
lists=$LISTS
base
if [ ${#control_plane[@]} -gt 0 ]; then
    need go "see https://go.dev/dl"
    tests/controlplane/build.sh "$target/controlplane" "${control_plane[@]}"
fi
for name in "$@"; do
    case $name in
    graph-service | executor-service | ownergraph)
        place "$name" "$programs/$name"
        cp "$lists/$name.cdx.json" "$roots/$name/sbom.cdx.json"
        ;;
    etcd | kube-apiserver | kubectl) place "$name" "$target/controlplane/$name" ;;
    nats-server) place_linked "$name" "$(debian nats-server /usr/sbin/nats-server)" ;;
    prometheus) place_linked "$name" "$(debian prometheus /usr/bin/prometheus)" ;;
    esac
done
