"""provenance.py VERSION COMMIT PROFILE: reads the checksums of files and writes an unsigned in-toto statement with SLSA's provenance."""

import json
import re
import subprocess
import sys

version, commit, profile = sys.argv[1:]
sums = [line.split(maxsplit=1) for line in sys.stdin.read().splitlines()]


def first_line(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[0]


pinned = re.findall(r"^([\w-]+)==(\S+)", open("deploy/release/requirements.txt", encoding="utf-8").read(), re.M)
statement = {
    "_type": "https://in-toto.io/Statement/v1",
    "subject": [{"name": name, "digest": {"sha256": digest}} for digest, name in sums],
    "predicateType": "https://slsa.dev/provenance/v1",
    "predicate": {
        "buildDefinition": {
            "buildType": "https://ownergraph.dev/release/v1",
            "externalParameters": {"tag": f"v{version}", "profile": profile},
            "internalParameters": {"signed": False, "note": "This statement has no signature: it describes the build and does not prove it."},
            "resolvedDependencies": [
                {"name": "source", "digest": {"gitCommit": commit}},
                {"name": first_line("rustc", "--version")},
                *({"name": f"{name} {pin}"} for name, pin in pinned),
            ],
        },
        "runDetails": {"builder": {"id": "https://ownergraph.dev/release/deploy/release.sh"}, "metadata": {}},
    },
}
json.dump(statement, sys.stdout, indent=2)
print()
