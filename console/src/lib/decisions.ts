// Reads of the decision log.

import type { MessageInitShape } from "@bufbuild/protobuf";
import type {
  DecisionEvent,
  DecisionFilterSchema,
  Phase,
} from "../generated/ownergraph/decision/v1beta1/decision_service_pb.ts";
import type { ObjectRef } from "../generated/ownergraph/type/v1beta1/type_pb.ts";
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

/** Kept events of a cascade, the newest first. */
export async function past(root: ObjectRef, phases: Phase[], pagesMax = 20): Promise<DecisionEvent[]> {
  const found: DecisionEvent[] = [];
  let pageToken = "";
  for (let page = 0; page < pagesMax; page += 1) {
    const answer = await decisions.listDecisions({ include: aboutCascade(root, phases), pageSize: 1000, pageToken });
    found.push(...answer.events);
    pageToken = answer.nextPageToken;
    if (!pageToken) break;
  }
  return found;
}
