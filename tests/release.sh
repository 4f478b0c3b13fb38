#!/usr/bin/env bash
# release.sh [DIRECTORY]: packs a release twice, and checks its files. The programs of this machine come from the
# images, or from DIRECTORY. A small program stands for those of other platforms, because only deploy/release.sh
# compiles them.
set -euo pipefail
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}
# The maximum seconds of the demo. On an idle machine it takes a few; a busy machine needs more.
DEMO_WITHIN=${DEMO_WITHIN:-30}
built=${1:-$target/$(rustc -vV | sed -n 's/^host: //p')/dist}
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)
here=linux_$(uname -m | sed 's/x86_64/amd64/; s/aarch64/arm64/')
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export SOURCE_DATE_EPOCH=1700000000 OWNERGRAPH_COMMIT=0123456789abcdef RELEASE_URL=https://ownergraph.dev/test

fail() { echo "tests/release.sh: $*" >&2; exit 1; }

step() { printf -- '-- %s (%ss)\n' "$*" "$SECONDS"; }

programs() {
    local platform name suffix
    for platform in {linux,darwin,windows}_{amd64,arm64}; do
        mkdir -p "$work/programs/$platform"
        for name in ownergraph graph-service executor-service healthcheck; do
            case $platform in windows_*) suffix=.exe ;; *) suffix='' ;; esac
            case $platform/$name in
            "$here"/*) cp "$built/$name" "$work/programs/$platform/" ;;
            linux_*/* | */ownergraph) cp "$built/healthcheck" "$work/programs/$platform/$name$suffix" ;;
            esac
        done
    done
    [ -d "$target/sbom" ] || deploy/sbom.sh "$target/sbom"
    cp -r "$target/sbom" "$work/programs/"
}

# inside ROOT COMMAND…: runs a program without any other file, and without an environment.
inside() {
    if [ "$(id -u)" = 0 ]; then env -i /usr/sbin/chroot "$@"; else env -i /usr/bin/unshare --map-root-user --root="$1" "${@:2}"; fi
}

# The script refuses programs that do not fit before it builds any.
others() {
    local commit others=$work/others says
    mkdir -p "$others/linux_amd64"
    commit=$(git rev-parse HEAD)
    [ -z "$(git status --porcelain)" ] || commit+=-dirty
    refused() {
        says=$(PROGRAMS=$1 PLATFORMS=$2 deploy/release.sh --programs 2>&1) && fail "deploy/release.sh takes $1 for $2"
        grep -q "$3" <<<"$says" || fail "deploy/release.sh says: $says"
    }
    refused "$others" windows/arm64 'has no file named commit'
    echo another >"$others/commit"
    refused "$others" windows/arm64 'are from commit another, not'
    echo "$commit" >"$others/commit"
    refused "$others" 'windows/arm64 linux/amd64' 'linux/amd64 is in .* and in PLATFORMS'
    mkdir -p "$target/release-programs"
    refused "$target/release-programs" windows/arm64 'which this script empties'
}

# The root contains only the archive and random numbers: no library, no other program, no environment.
archive() {
    local root=$work/root/ownergraph_${version}_$here began
    mkdir -p "$root"
    tar --extract --gzip --file "$work/first/ownergraph_${version}_$here.tar.gz" --directory "$root"
    mkdir "$root/dev"
    # These are files, because only root may make devices.
    head -c 8M /dev/urandom | tee "$root/dev/random" >"$root/dev/urandom"
    inside "$root" /ownergraph --version | grep -qx "ownergraph $version" || fail "the program of the archive is not version $version"
    inside "$root" /ownergraph version --client -o json | tr -d ' ' | grep -q "\"version\":\"$version\"" || fail "version --client -o json does not say $version"
    inside "$root" /kubectl-ownergraph --help | grep -q 'Usage: kubectl ownergraph' || fail "kubectl-ownergraph does not know its name"
    began=$SECONDS
    inside "$root" /ownergraph demo >"$work/demo" 2>&1 || { cat "$work/demo" >&2; fail "the demo failed"; }
    echo "the demo took $((SECONDS - began)) s"
    [ $((SECONDS - began)) -le "$DEMO_WITHIN" ] || fail "the demo took $((SECONDS - began)) s"
    for name in graph-service executor-service; do inside "$root" "/$name" --version >/dev/null; done
    [ -s "$root/LICENSE" ] && [ -s "$root/CHANGELOG.md" ] && [ -s "$root/completions/_ownergraph" ] || fail "the archive lacks a file"
    manual "$root/man"
}

# Each page names itself, and man(1) can show it without a warning where it is installed.
manual() {
    local page name pages=("$1"/*.1)
    [ ${#pages[@]} -ge 25 ] || fail "the archive has ${#pages[@]} manual pages"
    for name in ownergraph ownergraph-plan-delete graph-service executor-service; do [ -s "$1/$name.1" ] || fail "there is no manual page $name"; done
    for page in "${pages[@]}"; do
        name=$(basename "$page" .1)
        grep -q "^\.TH $name 1" "$page" || fail "the manual page $name does not begin with its name"
        command -v man >/dev/null || continue
        LC_ALL=C.UTF-8 MANWIDTH=100 man --warnings -l "$page" 2>&1 >"$work/page" | tee "$work/said" >&2
        [ ! -s "$work/said" ] && grep -q '^NAME' "$work/page" || fail "man does not show the page $name"
    done
}

# Checks the manifest with krew's own tool, and installs it with krew.
plugin() {
    local manifest=$work/first/ownergraph.yaml
    "$tools/validate-krew-manifest" -skip-install -manifest "$manifest" 2>"$work/krew" || { cat "$work/krew" >&2; fail "krew refuses the manifest"; }
    [ "$(grep -c 'os: ' "$manifest")" = 6 ] || fail "the manifest has not six platforms"
    KREW_ROOT=$work/krew-root "$tools/krew" install --manifest="$manifest" \
        --archive="$work/first/kubectl-ownergraph_${version}_$here.tar.gz" >"$work/krew" 2>&1 || { cat "$work/krew" >&2; fail "krew does not install it"; }
    "$work/krew-root/bin/kubectl-ownergraph" --help | grep -q 'Usage: kubectl ownergraph' || fail "the plug-in does not know its name"
}

# A copy of a layout reads each blob, and compares digest and size.
layouts() {
    local name architecture config
    mkdir "$work/copy"
    for name in graph-service executor-service ownergraph; do
        skopeo copy --quiet --all "oci:$work/first/images/$name:$version" "oci:$work/copy/$name:$version"
        for architecture in amd64 arm64; do
            config=$(skopeo --override-arch "$architecture" inspect --config "oci:$work/first/images/$name:$version")
            grep -q "\"architecture\":\"$architecture\"" <<<"$(tr -d ' \n' <<<"$config")" || fail "$name has no image for $architecture"
        done
    done
    "$tools/helm" lint --quiet "$work/first/ownergraph-$version.tgz" || fail 'Helm refuses the chart of the release'
    skopeo copy --quiet "oci:$work/first/charts/ownergraph:$version" "oci:$work/copy/chart:$version"
    # The image of this machine, unpacked, is what runs.
    mkdir "$work/image"
    skopeo --override-arch "${here#linux_}" copy --quiet "oci:$work/first/images/ownergraph:$version" "dir:$work/flat"
    for layer in $(python3 -c 'import json, sys; print(*[l["digest"][7:] for l in json.load(sys.stdin)["layers"]])' <"$work/flat/manifest.json"); do
        tar --extract --gzip --file "$work/flat/$layer" --directory "$work/image"
    done
    inside "$work/image" /ownergraph --version | grep -qx "ownergraph $version" || fail "the image does not run"
}

for tool in skopeo go unshare; do command -v $tool >/dev/null || fail "$tool is missing; apt-get install skopeo golang util-linux"; done
[ -x "$built/ownergraph" ] || fail "$built has no programs; deploy/images.sh builds them"
tools=$(mkdir -p "$target/release-tools" && cd "$target/release-tools" && pwd)
for module in tests/release tests/charttools; do GOBIN=$tools CGO_ENABLED=0 go install -C $module -trimpath -ldflags '-s -w' tool; done
step 'the workflows of GitHub'
"$tools/actionlint" .github/workflows/*.yaml
step 'programs of other machines'
others
step 'the files, and the same again'
programs
deploy/release/package.sh "$work/programs" "$work/first"
# The second run has another umask, and its inputs have other times. Neither may change a file.
find "$work/programs" -exec touch {} +
(umask 077 && deploy/release/package.sh "$work/programs" "$work/second")
diff --recursive "$work/first" "$work/second" || fail 'the same programs gave different files'
(cd "$work/first" && sha256sum --quiet --check SHA256SUMS)
step 'the archive, in an empty root'
archive
step krew
plugin
step 'images and chart'
layouts
step 'passed'
