// Follows every decision of the collector. After a restart it continues where it stopped. It is the skeleton of a
// policy engine.
//
// Prints one line per event to stdout. The position is stored after all events up to it are handled. So a subscriber
// that is killed sees some events again, and misses none. `npm run generate` writes the modules below generated.

import { existsSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { format, parse } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";
import { create, fromJsonString, type MessageInitShape } from "@bufbuild/protobuf";
import type { Duration } from "@bufbuild/protobuf/wkt";
import { ConnectError, createClient } from "@connectrpc/connect";
import { createGrpcTransport, Http2SessionManager } from "@connectrpc/connect-node";
import { ErrorInfoSchema, RetryInfoSchema } from "../generated/google/rpc/error_details_pb.js";
import {
  type DecisionEvent,
  DecisionService,
  PhaseSchema,
  type Position,
  PositionSchema,
  type WatchDecisionsRequestSchema,
} from "../generated/ownergraph/decision/v1beta1/decision_service_pb.js";
import { ObjectRefSchema } from "../generated/ownergraph/type/v1beta1/type_pb.js";
import { ItemKind, ItemKindSchema } from "../generated/ownergraph/work/v1beta1/work_service_pb.js";

const USAGE = `Usage: subscriber --server HOST:PORT,HOST:PORT [flags]
  --server LIST           graph services, tried in turn
  --position FILE         file with the position of this subscriber (default position.json)
  --protect NAMESPACE     print a warning when an object in this namespace is deleted (default kube-system)
  --tls-ca FILE           authorities of the server's certificate, as PEM; requests TLS, as https:// does
  --tls-cert FILE         client certificate, as PEM
  --tls-key FILE          its key
  --tls-server-name NAME  name that the server's certificate must have, instead of the host in its address
  --token-file FILE       bearer token, which is sent over TLS only`;

const text = { type: "string" } as const;

/** Reads the flags. The error is one sentence. */
function flags() {
  const { values } = parseArgs({
    options: {
      server: { type: "string", multiple: true },
      position: { type: "string", default: "position.json" },
      protect: { type: "string", default: "kube-system" },
      "tls-ca": text,
      "tls-cert": text,
      "tls-key": text,
      "tls-server-name": text,
      "token-file": text,
      help: { type: "boolean" },
    },
  });
  if (values.help) {
    console.log(USAGE);
    process.exit(0);
  }
  const servers = values.server?.flatMap((list) => list.split(",")) ?? [];
  const tls = values["tls-ca"] !== undefined || servers.some((server) => server.startsWith("https://"));
  if (servers.length === 0) throw new Error("--server is missing");
  if (!values["tls-cert"] !== !values["tls-key"]) throw new Error("--tls-cert and --tls-key need each other");
  if (values["token-file"] && !tls) {
    throw new Error("--token-file needs TLS: give --tls-ca, or an https:// address");
  }
  // A flag with a default always has a value, which the types of older versions of Node do not say.
  return { ...values, position: values.position ?? "", protect: values.protect ?? "", servers, tls };
}

type Flags = ReturnType<typeof flags>;

/** Follows one stream to its end. */
async function follow(server: string, flags: Flags): Promise<void> {
  const read = (file: string | undefined) => (file === undefined ? undefined : readFileSync(file, "utf8"));
  // The address of the leader has no scheme. The scheme of the servers on the command line is used.
  const baseUrl = `${flags.tls ? "https" : "http"}://${server.replace(/^https?:\/\//, "")}`;
  // The files are read again for each connection, because they rotate.
  const nodeOptions = {
    ca: read(flags["tls-ca"]),
    cert: read(flags["tls-cert"]),
    key: read(flags["tls-key"]),
    ...(flags["tls-server-name"] && { servername: flags["tls-server-name"] }),
  };
  const token = read(flags["token-file"])?.trim();
  const headers: HeadersInit = token === undefined ? {} : { authorization: `Bearer ${token}` };
  const sessionManager = new Http2SessionManager(baseUrl, undefined, nodeOptions);
  try {
    const client = createClient(DecisionService, createGrpcTransport({ baseUrl, sessionManager }));
    const request = { acceptGaps: true, start: start(flags.position) };
    for await (const { event, position } of client.watchDecisions(request, { headers })) {
      if (event.case === "batch") {
        event.value.events.forEach((event) => handle(event, flags.protect));
      } else if (event.case === "gap") {
        console.log(`gap ${event.value.reason} before ${event.value.next?.logId}/${event.value.next?.sequence}`);
      } else if (event.case === "goingAway") {
        await sleep(milliseconds(event.value.reconnectAfter) ?? 0);
      }
      // A message without an event may move the position, too.
      if (position) store(flags.position, position);
    }
  } finally {
    sessionManager.abort();
  }
}

/** The place for the policy: handles one event. */
function handle(event: DecisionEvent, protectedNamespace: string): void {
  const at = event.position;
  const target = event.target ?? create(ObjectRefSchema);
  const phase = PhaseSchema.value[event.phase]?.name ?? event.phase;
  const kind = ItemKindSchema.value[event.kind]?.name ?? event.kind;
  const name = `${target.kind} ${target.namespace}/${target.name}`;
  console.log(`${at?.logId}/${at?.sequence} ${phase} ${kind} ${name}`);
  if (event.kind === ItemKind.DELETE && target.namespace === protectedNamespace) {
    console.error(`policy: ${name} is to be deleted in protected namespace ${protectedNamespace}`);
  }
}

/** Returns the leader, if the error names it, and the milliseconds to wait. */
function advice(error: ConnectError): { leader?: string; wait: number } {
  const info = error.findDetails(ErrorInfoSchema).find((info) => info.domain === "ownergraph.dev");
  const delay = error.findDetails(RetryInfoSchema)[0]?.retryDelay;
  return { leader: info?.metadata["leaderEndpoint"] || undefined, wait: milliseconds(delay) ?? 1000 };
}

function milliseconds(duration: Duration | undefined): number | undefined {
  return duration && Number(duration.seconds) * 1000 + duration.nanos / 1e6;
}

function start(file: string): MessageInitShape<typeof WatchDecisionsRequestSchema>["start"] {
  if (!existsSync(file)) return { case: "oldest", value: true };
  return { case: "after", value: fromJsonString(PositionSchema, readFileSync(file, "utf8")) };
}

/**
 * Writes to another name first. A process that is killed while it writes then leaves the old position, and not half of
 * a new one.
 */
function store(file: string, { logId, sequence }: Position): void {
  const next = format({ ...parse(file), base: "", ext: ".next" });
  writeFileSync(next, JSON.stringify({ logId, sequence: Number(sequence) }));
  renameSync(next, file);
}

async function main(flags: Flags): Promise<void> {
  let hint: string | undefined;
  for (let turn = 0; ; turn++) {
    const server = hint ?? flags.servers[turn % flags.servers.length] ?? "";
    hint = undefined;
    try {
      await follow(server, flags);
    } catch (thrown) {
      const error = ConnectError.from(thrown);
      console.error(`${server}: ${error.rawMessage}`);
      const { leader, wait } = advice(error);
      hint = leader;
      await sleep(wait);
    }
  }
}

let given: Flags | undefined;
try {
  given = flags();
} catch (error) {
  console.error(`${error instanceof Error ? error.message : error}\n${USAGE}`);
  process.exitCode = 2;
}
if (given) await main(given);
