// Reads of the decision log.

import type { MessageInitShape } from "@bufbuild/protobuf";
import type { Timestamp } from "@bufbuild/protobuf/wkt";
import type { DecisionFilterSchema, Phase } from "../generated/ownergraph/decision/v1beta1/decision_service_pb.ts";
import type { ObjectRef } from "../generated/ownergraph/type/v1beta1/type_pb.ts";
import { paged } from "./asked.svelte.ts";
import { decisions } from "./clients.ts";

export type Filter = MessageInitShape<typeof DecisionFilterSchema>;

/** The decisions about an object and about everything that its deletion reaches. */
export function aboutCascade(root: ObjectRef, phases: Phase[]): Filter[] {
  const uid = JSON.stringify(root.uid);
  // Owners and dependents share a namespace, unless the owner has none. Callers without rights for all need it.
  const targets = root.namespace ? [{ namespaces: [root.namespace] }] : [];
  return [
    { targets: [{ uids: [root.uid], namespaces: root.namespace ? [root.namespace] : [] }], phases },
    { targets, phases, cel: `event.root.uid == ${uid}` },
    { targets, phases, cel: `event.cause_chain.exists(owner, owner.uid == ${uid})` },
  ];
}

/** Maximum number of pages of the log that the page reads at once. */
const PAGES_MAX = 20;

/** Kept events of a cascade, the newest first. */
export const past = (root: ObjectRef, phases: Phase[], signal?: AbortSignal) =>
  kept({ include: aboutCascade(root, phases) }, signal);

/** Kept events, the newest first. */
export function kept(request: { include: Filter[]; startTime?: Timestamp }, signal?: AbortSignal) {
  const read = (pageToken: string) =>
    decisions.listDecisions({ ...request, pageSize: 1000, pageToken }, signal ? { signal } : {});
  return paged(PAGES_MAX, read, ({ events }) => events);
}
