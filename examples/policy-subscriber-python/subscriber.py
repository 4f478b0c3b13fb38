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
from ownergraph.decision.v1beta1 import decision_service_pb2 as decisions
from ownergraph.decision.v1beta1 import decision_service_pb2_grpc as services
from ownergraph.work.v1beta1 import work_service_pb2 as work


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


def connect(server, args):
    """A hint at the leader has no scheme: it is called as the servers on the command line are. Files are read anew, they rotate."""
    host = server.removeprefix("https://").removeprefix("http://")
    if not args.tls:
        return grpc.insecure_channel(host)
    read = lambda path: path.read_bytes() if path else None
    credentials = grpc.ssl_channel_credentials(read(args.tls_ca), read(args.tls_key), read(args.tls_cert))
    name = [("grpc.ssl_target_name_override", args.tls_server_name)] if args.tls_server_name else []
    return grpc.secure_channel(host, credentials, options=name)


def follow(server, args):
    """Follows one stream to its end."""
    token = [("authorization", f"Bearer {args.token_file.read_text().strip()}")] if args.token_file else []
    with connect(server, args) as channel:
        request = decisions.WatchDecisionsRequest(accept_gaps=True, **stored(args.position))
        for response in services.DecisionServiceStub(channel).WatchDecisions(request, metadata=token):
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
    flags.add_argument("--tls-ca", type=pathlib.Path, help="authorities of the server's certificate, as PEM; means TLS, as https:// does")
    flags.add_argument("--tls-cert", type=pathlib.Path, help="the certificate to show, as PEM")
    flags.add_argument("--tls-key", type=pathlib.Path, help="its key")
    flags.add_argument("--tls-server-name", help="name to check the server's certificate against")
    flags.add_argument("--token-file", type=pathlib.Path, help="a bearer token; it goes over TLS only")
    args = flags.parse_args()
    args.tls = bool(args.tls_ca) or "https://" in args.server
    if bool(args.tls_cert) != bool(args.tls_key):
        flags.error("--tls-cert and --tls-key need each other")
    if args.token_file and not args.tls:
        flags.error("--token-file needs TLS: give --tls-ca, or an https:// address")
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
