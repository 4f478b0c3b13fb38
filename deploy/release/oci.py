"""Writes OCI layouts: directories with index.json, oci-layout and blobs.

oci.py image LAYOUT NAME VERSION COMMIT ROOTS...   An index with an image for each directory of ROOTS (linux_amd64), which has
                                                   base.tar.gz and NAME.tar.gz.
oci.py chart LAYOUT CHART.YAML ARCHIVE             The artefact that `helm pull oci://` reads.
"""

import datetime
import gzip
import hashlib
import json
import os
import pathlib
import re
import sys

OCI = "application/vnd.oci.image"
HELM = "application/vnd.cncf.helm"
TITLE = "org.opencontainers.image"


def digest(content):
    return "sha256:" + hashlib.sha256(content).hexdigest()


def created():
    time = datetime.datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), datetime.timezone.utc)
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")


class Layout:
    def __init__(self, path):
        self.path = pathlib.Path(path)
        self.blobs = self.path / "blobs" / "sha256"
        self.blobs.mkdir(parents=True)
        (self.path / "oci-layout").write_text('{"imageLayoutVersion":"1.0.0"}')

    def blob(self, media_type, content):
        """Stores a blob and describes it."""
        name = digest(content)
        (self.blobs / name.removeprefix("sha256:")).write_bytes(content)
        return {"mediaType": media_type, "digest": name, "size": len(content)}

    def document(self, media_type, document):
        return self.blob(media_type, json.dumps(document, separators=(",", ":")).encode())

    def manifest(self, config, layers, annotations):
        media_type = f"{OCI}.manifest.v1+json"
        manifest = {"schemaVersion": 2, "mediaType": media_type, "config": config, "layers": layers, "annotations": annotations}
        return self.document(media_type, manifest)

    def close(self, described, tag):
        annotated = {**described, "annotations": {f"{TITLE}.ref.name": tag}}
        index = {"schemaVersion": 2, "mediaType": f"{OCI}.index.v1+json", "manifests": [annotated]}
        (self.path / "index.json").write_text(json.dumps(index, separators=(",", ":")))


def image(path, name, version, commit, *roots):
    layout = Layout(path)
    annotations = {
        f"{TITLE}.title": name,
        f"{TITLE}.version": version,
        f"{TITLE}.revision": commit,
        f"{TITLE}.created": created(),
        f"{TITLE}.licenses": "Apache-2.0",
    }
    manifests = []
    for root in map(pathlib.Path, roots):
        system, architecture = root.name.split("_")
        layers = [(root / f"{part}.tar.gz").read_bytes() for part in ("base", name)]
        config = {
            "architecture": architecture,
            "os": system,
            "created": created(),
            "config": {"User": "65532:65532", "Entrypoint": [f"/{name}"], "WorkingDir": "/", "Labels": annotations},
            "rootfs": {"type": "layers", "diff_ids": [digest(gzip.decompress(layer)) for layer in layers]},
        }
        described = layout.manifest(
            layout.document(f"{OCI}.config.v1+json", config),
            [layout.blob(f"{OCI}.layer.v1.tar+gzip", layer) for layer in layers],
            annotations,
        )
        manifests.append({**described, "platform": {"architecture": architecture, "os": system}})
    media_type = f"{OCI}.index.v1+json"
    index = {"schemaVersion": 2, "mediaType": media_type, "manifests": manifests, "annotations": annotations}
    layout.close(layout.document(media_type, index), version)


def chart(path, about, archive):
    layout = Layout(path)
    # The single values of the file, which are all that readers of the artefact use.
    lines = re.findall(r"^(\w+): ([^\[].*)$", pathlib.Path(about).read_text(), re.MULTILINE)
    chart = {name: value.strip('"') for name, value in lines}
    annotations = {
        f"{TITLE}.title": chart["name"],
        f"{TITLE}.version": chart["version"],
        f"{TITLE}.description": chart["description"],
        f"{TITLE}.created": created(),
    }
    content = layout.blob(f"{HELM}.chart.content.v1.tar+gzip", pathlib.Path(archive).read_bytes())
    layout.close(layout.manifest(layout.document(f"{HELM}.config.v1+json", chart), [content], annotations), chart["version"])


if __name__ == "__main__":
    {"image": image, "chart": chart}[sys.argv[1]](*sys.argv[2:])
