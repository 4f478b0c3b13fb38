#!/usr/bin/env bash
# images.sh [NAME…]: builds the named images, or all images of docker-compose.yaml. The inputs are this tree, package
# registries and Debian's packages. Each image starts empty: no base image is pulled. roots.sh lists the contents.
#
# The script loads the images into dockerd as localhost/ownergraph/NAME:$OWNERGRAPH_TAG (dev). target/images has them as
# archives for `docker load`, `ctr images import` and `kind load image-archive`, each with a list of its inputs. The
# same input gives the same image id: all files have one owner and one time, SOURCE_DATE_EPOCH, by default that of the
# last commit.
set -euo pipefail
cd "$(dirname "$0")/.."

all=(graph-service executor-service ownergraph etcd kube-apiserver kubectl nats-server prometheus)
tag=${OWNERGRAPH_TAG:-dev}
out=${CARGO_TARGET_DIR:-target}/images
roots=$out/roots
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}

fail() { echo "deploy/images.sh: $*" >&2; exit 1; }

# Packs a directory into an archive. The same files give the same archive.
pack() {
    tar --directory "$1" --create --file "$2" --sort=name --format=ustar --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner \
        --mode='u=rwX,go=rX' .
}

digest() { sha256sum "$1" | cut -d' ' -f1; }

# Packs an image of two layers: the common layer, and the layer of the image itself.
image() {
    local name=$1 parts=$out/$1.parts base own config id
    rm -rf "$parts"
    mkdir -p "$parts"
    pack "$roots/$name" "$parts/own"
    base=$(digest "$out/base.tar")
    own=$(digest "$parts/own")
    ln "$out/base.tar" "$parts/$base.tar"
    mv "$parts/own" "$parts/$own.tar"
    config='{"architecture":"'$architecture'","os":"linux","created":"'$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)'",'
    config+='"config":{"User":"65532:65532","Entrypoint":["/'$name'"],"WorkingDir":"/",'
    config+='"Labels":{"org.opencontainers.image.title":"'$name'"}},'
    config+='"rootfs":{"type":"layers","diff_ids":["sha256:'$base'","sha256:'$own'"]}}'
    printf %s "$config" >"$parts/config"
    id=$(digest "$parts/config")
    mv "$parts/config" "$parts/$id.json"
    printf '[{"Config":"%s.json","RepoTags":["localhost/ownergraph/%s:%s"],"Layers":["%s.tar","%s.tar"]}]' \
        "$id" "$name" "$tag" "$base" "$own" >"$parts/manifest.json"
    pack "$parts" "$out/$name.tar"
    rm -rf "$parts"
    [ ! -e "$roots/$name/sbom.cdx.json" ] || cp "$roots/$name/sbom.cdx.json" "$out/$name.cdx.json"
    echo "sha256:$id" >"$out/$name.id"
}

case $(uname -m) in
x86_64) architecture=amd64 ;;
aarch64) architecture=arm64 ;;
*) fail "no image is made for $(uname -m)" ;;
esac
names=("$@")
[ $# -gt 0 ] || names=("${all[@]}")
command -v openssl >/dev/null ||
    fail "openssl is missing, which makes the certificates; apt-get install docker.io docker-compose iptables openssl"
deploy/compose/credentials.sh target/compose
mkdir -p "$out"
deploy/roots.sh "$roots" "${names[@]}"
pack "$roots/base" "$out/base.tar"
for name in "${names[@]}"; do image "$name"; done
rm -r "$roots" "$out/base.tar"

command -v docker >/dev/null || fail "docker is missing, and the archives stay in $out; apt-get install docker.io docker-compose iptables openssl"
docker info >/dev/null 2>&1 || fail "no dockerd answers, and the archives stay in $out; start it, or see with docker info what is wrong"
for name in "${names[@]}"; do
    docker load --quiet --input "$out/$name.tar" >/dev/null
    printf '%-42s %s\n' "localhost/ownergraph/$name:$tag" "$(cat "$out/$name.id")"
done
