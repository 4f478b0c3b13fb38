#!/usr/bin/env bash
# package.sh PROGRAMS OUT: makes the files of a release in OUT from built programs. PROGRAMS has a directory for each
# platform (linux_amd64) and sbom. The environment has SOURCE_DATE_EPOCH, OWNERGRAPH_COMMIT and RELEASE_URL, as for
# release.sh.
#
#   ownergraph_VERSION_PLATFORM.tar.gz       the command line under its three names, completions, manual pages; for
#                                            Linux the services too
#   kubectl-ownergraph_VERSION_PLATFORM…     the plug-in alone, for krew, which takes no links
#   ownergraph.yaml, ownergraph.rb           the manifest of krew, the formula of Homebrew
#   PROGRAM_VERSION.cdx.json                 the inputs of a program (CycloneDX)
#   images/PROGRAM                           an image for each architecture of Linux, as an OCI layout
#   ownergraph-VERSION.tgz, charts/ownergraph  the chart, and the same as an OCI layout
#   provenance.intoto.json, SHA256SUMS       the inputs and the builder, unsigned; checksums of all these files
#
# The same input gives the same bytes: owner, time, order and mode of all files are fixed.
set -euo pipefail
[ $# = 2 ] || { echo "usage: deploy/release/package.sh PROGRAMS OUT" >&2; exit 2; }
programs=$(cd "$1" && pwd)
rm -rf "$2"
mkdir -p "$2"
out=$(cd "$2" && pwd)
cd "$(dirname "$0")/../.."
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)
url=${RELEASE_URL:-https://ownergraph.dev/releases/v$version}
: "${SOURCE_DATE_EPOCH:?is the time of the commit}" "${OWNERGRAPH_COMMIT:?is the commit}"
export SOURCE_DATE_EPOCH
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() { echo "deploy/release/package.sh: $*" >&2; exit 1; }

digest() { sha256sum "$1" | cut -d' ' -f1; }

# pack DIRECTORY: writes an archive of what is in the directory to the output.
pack() {
    (cd "$1" && find . -mindepth 1 -printf '%P\n' | LC_ALL=C sort) |
        tar --directory "$1" --create --no-recursion --files-from=- --format=ustar --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 \
            --numeric-owner --mode='u=rwX,go=rX' | gzip -n -9
}

# archive NAME DIRECTORY: packs a directory as people of the platform expect it, and prints the name of the file.
archive() {
    case $1 in
    *_windows_*)
        chmod -R u=rwX,go=rX "$2"
        find "$2" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
        (cd "$2" && find . -type f -printf '%P\n' | LC_ALL=C sort | TZ=UTC xargs python3 -m zipfile -c "$out/$1.zip")
        echo "$1.zip"
        ;;
    *)
        pack "$2" >"$out/$1.tar.gz"
        echo "$1.tar.gz"
        ;;
    esac
}

# The program writes completions and the manual pages of all programs.
texts() {
    local ownergraph
    ownergraph=$programs/linux_$(uname -m | sed 's/x86_64/amd64/; s/aarch64/arm64/')/ownergraph
    [ -x "$ownergraph" ] || fail "$ownergraph is missing, and only it can write completions and manual pages; build the platform of this machine too"
    mkdir "$work/completions"
    "$ownergraph" completion bash >"$work/completions/ownergraph.bash"
    "$ownergraph" completion zsh >"$work/completions/_ownergraph"
    "$ownergraph" completion fish >"$work/completions/ownergraph.fish"
    "$ownergraph" completion powershell >"$work/completions/ownergraph.ps1"
    "$ownergraph" man "$work/man"
}

# The two archives of a platform.
archives() {
    local platform=$1 suffix='' all=$work/$1/ownergraph plugin=$work/$1/plugin name
    case $platform in windows_*) suffix=.exe ;; esac
    mkdir -p "$all" "$plugin"
    cp LICENSE README.md CHANGELOG.md "$all/"
    cp -r "$work/completions" "$work/man" "$all/"
    cp "$programs/$platform/ownergraph$suffix" "$all/"
    for name in kubectl-ownergraph kubectl_complete-ownergraph; do
        if [ -n "$suffix" ]; then cp "$all/ownergraph.exe" "$all/$name.exe"; else ln -s ownergraph "$all/$name"; fi
    done
    for name in graph-service executor-service; do
        [ ! -e "$programs/$platform/$name" ] || cp "$programs/$platform/$name" "$all/"
    done
    cp "$programs/$platform/ownergraph$suffix" "$plugin/kubectl-ownergraph$suffix"
    cp LICENSE "$plugin/"
    archive "ownergraph_${version}_$platform" "$all" >/dev/null
    file=$(archive "kubectl-ownergraph_${version}_$platform" "$plugin")
    cat >>"$work/platforms.yaml" <<EOF
  - selector:
      matchLabels:
        os: ${platform%_*}
        arch: ${platform#*_}
    uri: $url/$file
    sha256: $(digest "$out/$file")
    bin: kubectl-ownergraph$suffix
EOF
}

krew() {
    cat - "$work/platforms.yaml" >"$out/ownergraph.yaml" <<EOF
apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: ownergraph
spec:
  version: v$version
  homepage: https://ownergraph.dev
  shortDescription: Shows owners and dependents, and why objects stay
  description: |
    Shows what owns an object, what a deletion takes along, why an object
    stays or is stuck, and what the garbage collector decided. It works
    without a collector in the cluster; with Ownergraph it also pauses
    collection and follows decisions.
  platforms:
EOF
}

# The formula names the platforms that were built.
homebrew() {
    local system brewed_system architecture brewed file
    {
        cat <<EOF
class Ownergraph < Formula
  desc "Garbage collector for Kubernetes that you can ask, watch and pause"
  homepage "https://ownergraph.dev"
  version "$version"
  license "Apache-2.0"

EOF
        for system in darwin linux; do
            compgen -G "$out/ownergraph_${version}_${system}_*.tar.gz" >/dev/null || continue
            [ $system = darwin ] && brewed_system=macos || brewed_system=linux
            echo "  on_$brewed_system do"
            for architecture in amd64 arm64; do
                file=ownergraph_${version}_${system}_$architecture.tar.gz
                [ -e "$out/$file" ] || continue
                [ $architecture = amd64 ] && brewed=intel || brewed=arm
                printf '    on_%s do\n      url "%s"\n      sha256 "%s"\n    end\n' "$brewed" "$url/$file" "$(digest "$out/$file")"
            done
            printf '  end\n\n'
        done
        cat <<'EOF'
  def install
    bin.install "ownergraph"
    bin.install_symlink "ownergraph" => "kubectl-ownergraph"
    bin.install_symlink "ownergraph" => "kubectl_complete-ownergraph"
    bash_completion.install "completions/ownergraph.bash" => "ownergraph"
    zsh_completion.install "completions/_ownergraph"
    fish_completion.install "completions/ownergraph.fish"
    man1.install Dir["man/*.1"]
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/ownergraph --version")
  end
end
EOF
    } >"$out/ownergraph.rb"
}

# One index for each program, with an image for each architecture of Linux.
images() {
    local directory platform name
    for directory in "$programs"/linux_*; do
        platform=${directory##*/}
        PROGRAMS=$directory LISTS=$programs/sbom deploy/roots.sh "$work/roots/$platform" graph-service executor-service ownergraph
        for name in base graph-service executor-service ownergraph; do
            pack "$work/roots/$platform/$name" >"$work/roots/$platform/$name.tar.gz"
        done
    done
    for name in graph-service executor-service ownergraph; do
        python3 deploy/release/oci.py image "$out/images/$name" "$name" "$version" "$OWNERGRAPH_COMMIT" "$work"/roots/linux_*
    done
}

chart() {
    mkdir "$work/chart"
    cp -rL deploy/chart "$work/chart/ownergraph"
    rm -r "$work/chart/ownergraph/ci"
    pack "$work/chart" >"$out/ownergraph-$version.tgz"
    python3 deploy/release/oci.py chart "$out/charts/ownergraph" deploy/chart/Chart.yaml "$out/ownergraph-$version.tgz"
}

texts
for directory in "$programs"/*_*; do archives "${directory##*/}"; done
krew
homebrew
images
chart
for program in graph-service executor-service ownergraph; do cp "$programs/sbom/$program.cdx.json" "$out/${program}_$version.cdx.json"; done
sums() { (cd "$out" && find . -type f ! -name SHA256SUMS -printf '%P\n' | LC_ALL=C sort | xargs sha256sum); }
sums >"$work/subjects"
python3 deploy/release/provenance.py "$version" "$OWNERGRAPH_COMMIT" "${PROFILE:-small for ownergraph, dist}" <"$work/subjects" >"$out/provenance.intoto.json"
sums >"$out/SHA256SUMS"
echo "$out"
