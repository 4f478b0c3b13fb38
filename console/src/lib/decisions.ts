// Reads of the decision log.

import type { MessageInitShape } from "@bufbuild/protobuf";
import type { TimestampSchema } from "@bufbuild/protobuf/wkt";
import {
  type DecisionEvent,
  type DecisionFilterSchema,
  EventView,
  type Phase,
} from "../generated/ownergraph/decision/v1beta1/decision_service_pb.ts";
import type { ObjectRef } from "../generated/ownergraph/type/v1beta1/type_pb.ts";
import { paged } from "./asked.svelte.ts";
import { decisions } from "./clients.ts";
import { namespaceOf } from "./query.ts";

export type Filter = MessageInitShape<typeof DecisionFilterSchema>;

/** The object itself. Callers without rights for all namespaces need the one of the object. */
export const itself = ({ uid, namespace }: ObjectRef) => ({ uids: [uid], namespaces: namespace ? [namespace] : [] });

/** The decisions about an object and about everything that its deletion reaches. */
export function aboutCascade(root: ObjectRef, phases: Phase[]): Filter[] {
  const inside = namespaceOf(root);
  // No chain of owners leads from the objects in a namespace to it.
  if (inside) return [{ targets: [{ namespaces: [inside] }], phases }];
  const uid = JSON.stringify(root.uid);
  // Owners and dependents share a namespace, unless the owner has none. Callers without rights for all need it.
  const targets = root.namespace ? [{ namespaces: [root.namespace] }] : [];
  return [
    { targets: [itself(root)], phases },
    { targets, phases, cel: `event.root.uid == ${uid}` },
    { targets, phases, cel: `event.cause_chain.exists(owner, owner.uid == ${uid})` },
  ];
}

/** Maximum number of pages of the log that a table has. */
const PAGES_MAX = 20;

interface Question {
  include: Filter[];
  startTime?: MessageInitShape<typeof TimestampSchema>;
}
const reader = (question: Question, signal: AbortSignal) => (pageToken: string) =>
  decisions.listDecisions({ ...question, pageSize: 500, pageToken, view: EventView.BASIC }, { signal });

/** The newest kept events about an object and its cascade. */
export const past = (root: ObjectRef, signal: AbortSignal) =>
  paged(
    PAGES_MAX,
    reader({ include: [{ targets: [itself(root)] }, ...aboutCascade(root, [])] }, signal),
    ({ events }) => events,
  );

/** All kept events in parts, the newest first. */
export async function* kept(question: Question, signal: AbortSignal): AsyncGenerator<DecisionEvent[]> {
  const read = reader(question, signal);
  let pageToken = "";
  do {
    const { events, nextPageToken } = await read(pageToken);
    yield events;
    pageToken = nextPageToken;
  } while (pageToken);
}
