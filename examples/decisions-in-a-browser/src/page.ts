// Shows the decisions of the collector as they are made, the newest first. `?server=ADDRESS` begins at once, without a
// token. `npm run generate` writes the modules below generated.

import type { MessageInitShape } from "@bufbuild/protobuf";
import { type Duration, timestampDate } from "@bufbuild/protobuf/wkt";
import { ConnectError, createClient } from "@connectrpc/connect";
import { createGrpcWebTransport } from "@connectrpc/connect-web";
import {
  type DecisionEvent,
  DecisionService,
  PhaseSchema,
  type Position,
  type WatchDecisionsRequestSchema,
} from "../generated/ownergraph/decision/v1beta1/decision_service_pb.js";
import { ItemKindSchema } from "../generated/ownergraph/work/v1beta1/work_service_pb.js";

/** The rows of the table. Older ones go. */
const ROWS_MAX = 200;
const RETRY_MS = 1000;

const input = (id: string) => document.getElementById(id) as HTMLInputElement;
const form = document.getElementById("connect") as HTMLFormElement;
const rows = document.getElementById("events") as HTMLTableSectionElement;
const count = document.getElementById("count") as HTMLOutputElement;
const state = document.getElementById("state") as HTMLElement;

/** The following of the form's last values. A new one ends it. */
let following = new AbortController();
let events = 0;

/** Follows the log until `signal` ends it. After an error it goes on where it stopped. */
async function follow(baseUrl: string, token: string, signal: AbortSignal): Promise<void> {
  const client = createClient(DecisionService, createGrpcWebTransport({ baseUrl }));
  const headers: HeadersInit = token === "" ? {} : { authorization: `Bearer ${token}` };
  let seen: Position | undefined;
  while (!signal.aborted) {
    let wait = 0;
    try {
      const start: MessageInitShape<typeof WatchDecisionsRequestSchema>["start"] = seen
        ? { case: "after", value: seen }
        : { case: "oldest", value: true };
      state.textContent = `Following ${baseUrl}.`;
      for await (const { event, position } of client.watchDecisions({ acceptGaps: true, start }, { headers, signal })) {
        if (event.case === "batch") event.value.events.forEach(show);
        else if (event.case === "gap") state.textContent = `Some events are lost: ${event.value.reason}.`;
        else if (event.case === "goingAway") wait = milliseconds(event.value.reconnectAfter);
        seen = position ?? seen;
      }
    } catch (error) {
      // A page cannot follow the address of another leader: its origin and its certificate may differ.
      state.textContent = `${baseUrl}: ${ConnectError.from(error).rawMessage}`;
      wait = RETRY_MS;
    }
    await new Promise((resume) => setTimeout(resume, wait));
  }
}

/** Adds a row. The texts come from the cluster, so they are set as text and never as HTML. */
function show(event: DecisionEvent): void {
  const { position, eventTime, target } = event;
  const texts = [
    `${position?.sequence ?? ""}`,
    eventTime ? timestampDate(eventTime).toLocaleTimeString() : "",
    PhaseSchema.value[event.phase]?.name ?? `${event.phase}`,
    ItemKindSchema.value[event.kind]?.name ?? `${event.kind}`,
    target ? `${target.kind} ${target.namespace}/${target.name}` : "",
  ];
  const row = rows.insertRow(0);
  for (const text of texts) row.insertCell().textContent = text;
  if (rows.rows.length > ROWS_MAX) rows.deleteRow(ROWS_MAX);
  events += 1;
  count.value = `${events}`;
}

function milliseconds(duration: Duration | undefined): number {
  return duration ? Number(duration.seconds) * 1000 + duration.nanos / 1e6 : RETRY_MS;
}

function begin(): void {
  following.abort();
  following = new AbortController();
  rows.replaceChildren();
  events = 0;
  void follow(input("server").value, input("token").value, following.signal);
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  begin();
});
const given = new URLSearchParams(location.search).get("server");
if (given !== null) {
  input("server").value = given;
  begin();
}
