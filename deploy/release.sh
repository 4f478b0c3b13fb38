#!/usr/bin/env bash
# release.sh [--programs] [TAG]: makes all files of a release in target/release-VERSION. With TAG, the work tree must be
# that tag, without changes. Without TAG, the files are for a test: the commit in them ends with -dirty if the tree has
# changes.
# With --programs, the script ends after the programs, in target/release-programs.
#
# The same commit gives the same bytes, in every directory. On Linux the programs are compiled with zig, also those
# for this machine, so nothing of the machine is in them. The page of the console is built with Node from its lock
# file. Programs for macOS need Apple's frameworks: a machine with macOS makes them with --programs, and PROGRAMS
# names the copy of its directory here. release/package.sh describes the files.
#
# Environment:
#   PLATFORMS    the platforms (default: on Linux linux and windows, on macOS darwin, each for amd64 and arm64). For the
#                files of a release it must contain the platform of this machine, whose program writes the completions.
#   PROGRAMS     a directory with programs of other platforms from the same commit, made with --programs (default: none)
#   PROFILE      the profile of cargo (default: small for ownergraph, dist for the other programs)
#   RELEASE_URL  the address of the files, without a slash at the end (default: https://ownergraph.dev/releases/TAG)
set -euo pipefail
cd "$(dirname "$0")/.."

case $(uname) in
Darwin) everywhere="darwin/amd64 darwin/arm64" builder=build ;;
*) everywhere="linux/amd64 linux/arm64 windows/amd64 windows/arm64" builder=zigbuild ;;
esac
auditable=0.7.7
target=${CARGO_TARGET_DIR:-target}
tools=$(mkdir -p "$target/tools" && cd "$target/tools" && pwd)
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)

fail() { echo "deploy/release.sh: $*" >&2; exit 1; }

triple() {
    case $1 in
    linux/amd64) echo x86_64-unknown-linux-musl ;;
    linux/arm64) echo aarch64-unknown-linux-musl ;;
    darwin/amd64) echo x86_64-apple-darwin ;;
    darwin/arm64) echo aarch64-apple-darwin ;;
    windows/amd64) echo x86_64-pc-windows-gnu ;;
    windows/arm64) echo aarch64-pc-windows-gnullvm ;;
    *) fail "no release is made for $1; choose from linux, darwin and windows, each /amd64 or /arm64" ;;
    esac
}

# Zig and cargo-zigbuild are Python packages. cargo-auditable writes the list of crates into each program.
prepare_tools() {
    local zig
    zig=$tools/zig-$(cksum <deploy/release/requirements.txt | cut -d' ' -f1)
    if [ $builder = zigbuild ] && [ ! -e "$zig/complete" ]; then
        rm -rf "$zig"
        python3 -m venv "$zig"
        "$zig/bin/pip" install --quiet --disable-pip-version-check --no-deps --require-hashes --only-binary=:all: -r deploy/release/requirements.txt
        touch "$zig/complete"
    fi
    [ -x "$tools/$auditable/bin/cargo-auditable" ] ||
        cargo install --quiet --locked --debug --version "=$auditable" --root "$tools/$auditable" --target-dir "$tools/build" cargo-auditable
    rm -rf "$tools/build"
    export PATH=$zig/bin:$tools/$auditable/bin:$PATH
}

# Installs the standard library of a target, or says how to get it.
require_target() {
    [ -d "$(rustc --print target-libdir --target "$2")" ] || rustup target add "$2" >&2 ||
        fail "$1 needs the Rust target $2, which rustup cannot install here; run 'rustup target add $2' on a machine with a network, and build there"
}

profile() {
    case $1 in ownergraph) echo "${PROFILE:-small}" ;; *) echo "${PROFILE:-dist}" ;; esac
}

build() {
    compile "$1" "$(profile ownergraph)" -p cli --bin ownergraph
    case $1 in
    linux/*)
        compile "$1" "$(profile graph-service)" -p graph-service -p executor-service -p healthcheck \
            --bin graph-service --bin executor-service --bin healthcheck
        ;;
    esac
}

compile() {
    local platform=$1 profile=$2 triple
    triple=$(triple "$platform")
    echo "== $platform: $triple, profile $profile" >&2
    # Zig makes an error of the macros of date and time, which SOURCE_DATE_EPOCH fixes.
    env -u RUSTFLAGS -u CARGO_ENCODED_RUSTFLAGS SOURCE_DATE_EPOCH=0 RUSTC_WRAPPER="$PWD/deploy/rustc.sh" CARGO="$PWD/deploy/release/cargo.sh" \
        "CFLAGS_${triple//-/_}=-Wno-date-time -ffile-prefix-map=$PWD=/ownergraph -ffile-prefix-map=${CARGO_HOME:-$HOME/.cargo}=/cargo" \
        cargo-auditable auditable $builder --locked --profile "$profile" --target "$triple" "${@:3}" ||
        fail "$platform was not built; leave it out of PLATFORMS, or build it on a machine of that platform"
}

collect() {
    local platform=$1 into=$programs/${1/\//_} directory program
    mkdir -p "$into"
    for program in ownergraph graph-service executor-service healthcheck; do
        case $(profile $program) in dev) directory=debug ;; *) directory=$(profile $program) ;; esac
        for file in "$target/$(triple "$platform")/$directory/$program"{,.exe}; do
            [ ! -f "$file" ] || cp "$file" "$into/"
        done
    done
}

# Checks that the programs of other machines belong to those of this machine.
check_others() {
    local commit platform
    [ ! "$PROGRAMS" -ef "$programs" ] || fail "PROGRAMS is $programs, which this script empties; name a copy"
    commit=$(cat "$PROGRAMS/commit" 2>/dev/null) || fail "$PROGRAMS has no file named commit; make the directory with deploy/release.sh --programs"
    [ "$commit" = "$OWNERGRAPH_COMMIT" ] || fail "the programs in $PROGRAMS are from commit $commit, not $OWNERGRAPH_COMMIT"
    for platform in "${platforms[@]}"; do
        [ ! -e "$PROGRAMS/${platform/\//_}" ] || fail "$platform is in $PROGRAMS and in PLATFORMS"
    done
}

# Copies the programs of other machines.
take_others() {
    local directory
    for directory in "$PROGRAMS"/*_*; do
        cp -r "$directory" "$programs/"
        # An upload to a server can lose the mode.
        chmod 755 "$programs/${directory##*/}"/*
    done
}

read -ra platforms <<<"${PLATFORMS:-$everywhere}"
only_programs=''
[ "${1:-}" != --programs ] || { only_programs=yes; shift; }
case $# in 0 | 1) ;; *) echo "usage: deploy/release.sh [--programs] [TAG]" >&2; exit 2 ;; esac
OWNERGRAPH_COMMIT=$(git rev-parse HEAD)
changes=$(git status --porcelain)
if [ $# = 1 ]; then
    [ "$1" = "v$version" ] || fail "the tag of version $version (Cargo.toml) is v$version, not $1"
    [ "$(git rev-parse --verify --quiet "refs/tags/$1^{commit}")" = "$OWNERGRAPH_COMMIT" ] || fail "the tag $1 is not the commit that is checked out"
    [ -z "$changes" ] || fail "the work tree has changes: $(head -n 3 <<<"$changes")"
elif [ -n "$changes" ]; then
    OWNERGRAPH_COMMIT+=-dirty
fi
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export OWNERGRAPH_COMMIT SOURCE_DATE_EPOCH
programs=$target/release-programs
[ -z "${PROGRAMS:-}" ] || check_others
for platform in "${platforms[@]}"; do require_target "$platform" "$(triple "$platform")"; done
prepare_tools
rm -rf "$programs"
mkdir -p "$programs"
echo "$OWNERGRAPH_COMMIT" >"$programs/commit"
[ -z "${PROGRAMS:-}" ] || take_others
# An existing page may be of another commit.
deploy/console.sh anew
for platform in "${platforms[@]}"; do
    build "$platform"
    collect "$platform"
done
[ -z "$only_programs" ] || { echo "$programs"; exit; }
deploy/sbom.sh "$programs/sbom" all
deploy/release/package.sh "$programs" "$target/release-$version"
