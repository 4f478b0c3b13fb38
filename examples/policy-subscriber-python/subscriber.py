"""Follows every decision of the collector, and goes on after a restart where it stopped: the skeleton of a policy engine.

One line per event on stdout. The position is stored after the events up to it are handled, so a subscriber that is killed sees some
of them again and none too few. The modules of the API are generated from the .proto files; README.md has the command.
"""

import argparse
import itertools
import json
import os
import pathlib
import sys
import time

import grpc
from google.rpc import error_details_pb2
from grpc_status import rpc_status
from ownergraph.decision.v1alpha1 import decision_service_pb2 as decisions
from ownergraph.decision.v1alpha1 import decision_service_pb2_grpc as services
from ownergraph.work.v1alpha1 import work_service_pb2 as work


def stored(path):
    if not path.exists():
        return {"oldest": True}
    at = json.loads(path.read_text())
    return {"after": decisions.Position(log_id=at["logId"], sequence=at["sequence"])}


def store(path, position):
    """Under another name first: a process that is killed while it writes leaves the old position, not half of one."""
    following = path.with_suffix(".next")
    following.write_text(json.dumps({"logId": position.log_id, "sequence": position.sequence}))
    os.replace(following, path)


def handle(event, protected):
    """What a policy engine does with an event."""
    at, target = event.position, event.target
    phase, kind = decisions.Phase.Name(event.phase), work.ItemKind.Name(event.kind)
    name = f"{target.kind} {target.namespace}/{target.name}"
    print(f"{at.log_id}/{at.sequence} {phase} {kind} {name}", flush=True)
    if event.kind == work.ITEM_KIND_DELETE and target.namespace == protected:
        print(f"policy: {name} is to be deleted in protected namespace {protected}", file=sys.stderr)


def follow(server, args):
    """Follows one stream to its end."""
    with grpc.insecure_channel(server) as channel:
        request = decisions.WatchDecisionsRequest(accept_gaps=True, **stored(args.position))
        for response in services.DecisionServiceStub(channel).WatchDecisions(request):
            kind = response.WhichOneof("event")
            if kind == "batch":
                for event in response.batch.events:
                    handle(event, args.protect)
            elif kind == "gap":
                following = response.gap.next
                print(f"gap {response.gap.reason} before {following.log_id}/{following.sequence}", flush=True)
            elif kind == "going_away":
                time.sleep(response.going_away.reconnect_after.ToTimedelta().total_seconds())
            if response.HasField("position"):
                store(args.position, response.position)


def advice(error):
    """Who leads, and how long to wait, where the error says it."""
    leader, wait = None, 1.0
    status = rpc_status.from_call(error)
    for detail in status.details if status else []:
        info, retry = error_details_pb2.ErrorInfo(), error_details_pb2.RetryInfo()
        if detail.Unpack(info):
            leader = info.metadata.get("leaderEndpoint") or None
        elif detail.Unpack(retry):
            wait = retry.retry_delay.ToTimedelta().total_seconds()
    return leader, wait


def main():
    flags = argparse.ArgumentParser(description="Follow the decisions of Ownergraph.")
    flags.add_argument("--server", required=True, help="graph services, tried in turn: host:port,host:port")
    flags.add_argument("--position", type=pathlib.Path, default=pathlib.Path("position.json"))
    flags.add_argument("--protect", default="kube-system", help="complain when something in this namespace is deleted")
    args = flags.parse_args()
    hint = None
    for server in itertools.cycle(args.server.split(",")):
        try:
            follow(hint or server, args)
            hint = None
        except grpc.RpcError as error:
            print(f"{hint or server}: {error.details()}", file=sys.stderr)
            hint, wait = advice(error)
            time.sleep(wait)


if __name__ == "__main__":
    main()
