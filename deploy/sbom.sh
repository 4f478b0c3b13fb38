#!/usr/bin/env bash
# sbom.sh DIRECTORY [TARGET]: writes the inputs of Ownergraph's programs as CycloneDX, to DIRECTORY/PROGRAM.cdx.json,
# without paths and times of this machine. TARGET is that of this machine by default, or `all`.
set -euo pipefail
mkdir -p "$1"
triple=${2:-$(rustc -vV | sed -n 's/^host: //p')}
into=$(cd "$1" && pwd)
cd "$(dirname "$0")/.."
version=0.5.9
tools=${CARGO_TARGET_DIR:-target}/tools
# The tool writes a file with this name beside each manifest. No other tool uses the name.
name=ownergraph-sbom
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-0}

if [ ! -x "$tools/$version/bin/cargo-cyclonedx" ]; then
    # The tool is built without optimization, which takes half the time. It runs for a second.
    cargo install --quiet --locked --debug --version "=$version" --root "$tools/$version" --target-dir "$tools/build" cargo-cyclonedx >&2
    rm -rf "$tools/build"
fi
trap 'find . -path ./target -prune -o -name "$name.json" -exec rm {} +' EXIT
"$tools/$version/bin/cargo-cyclonedx" cyclonedx --quiet --format json --spec-version 1.5 --no-build-deps --override-filename "$name" \
    --target "$triple"
for crate in graph-service executor-service cli healthcheck; do
    program=${crate/#cli/ownergraph}
    sed "s#$PWD#/ownergraph#g" "$crate/$name.json" >"$into/$program.cdx.json"
done
# The packages in the page of the console, which the command line contains.
[ ! -e console/dist/index.html ] || node - "$into/ownergraph.cdx.json" <<'EOF'
const fs = require("fs");
const read = (path) => JSON.parse(fs.readFileSync(path));
const [list, bom] = [process.argv[2], read(process.argv[2])];
for (const [path, { dev, version, integrity, license }] of Object.entries(read("console/package-lock.json").packages)) {
    if (path === "" || dev) continue;
    const name = path.split("node_modules/").pop();
    const purl = `pkg:npm/${name.replace("@", "%40")}@${version}`;
    const [algorithm, digest] = integrity.split("-");
    if (algorithm !== "sha512") throw new Error(`${name}: ${algorithm}`);
    const hashes = [{ alg: "SHA-512", content: Buffer.from(digest, "base64").toString("hex") }];
    const licenses = [{ expression: license }];
    bom.components.push({ type: "library", "bom-ref": purl, name, version, scope: "required", hashes, licenses, purl });
}
fs.writeFileSync(list, JSON.stringify(bom, null, 2));
EOF
