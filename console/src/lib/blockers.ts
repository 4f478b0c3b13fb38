// What keeps a cascade from its end: pure functions.

import { Phase } from "../generated/ownergraph/decision/v1beta1/decision_service_pb.ts";
import {
  type ExplainObjectResponse,
  type Node,
  NodeState,
  Reason_Code as Code,
  Verdict,
} from "../generated/ownergraph/graph/v1beta1/graph_service_pb.ts";
import type { ObjectRef } from "../generated/ownergraph/type/v1beta1/type_pb.ts";
import type { Open } from "./queue.svelte.ts";
import type { Item } from "./tree.ts";

/** With these, an object waits for its dependents only. */
const OF_COLLECTION = ["foregroundDeletion", "orphan"];
const BLOCKED = [Verdict.BLOCKED, Verdict.HELD, Verdict.PARKED];

const waitsForController = ({ state, finalizers }: Node) =>
  state === NodeState.TERMINATING && finalizers.some((name) => !OF_COLLECTION.includes(name));

/** Whether a decision fails. The log begins with open decisions that wait for a retry as PROPOSED. */
export const isFailing = ({ phase, attempt }: Open): boolean =>
  phase === Phase.FAILED || phase === Phase.PARKED || (phase === Phase.PROPOSED && attempt > 0);

/**
 * The objects that may block the cascade of a root: those that guards, failures or finalizers keep, and then those that
 * terminate without dependents.
 */
export function suspectsOf(root: string, items: Item[], open: Iterable<Open>): ObjectRef[] {
  const kept = new Map<string, ObjectRef>();
  const ends: ObjectRef[] = [];
  for (const { uid, node, state } of items) {
    if (state.tone === "held" || waitsForController(node)) kept.set(uid, node.ref!);
    else if (state.tone === "bad" && node.dependentCount === 0) ends.push(node.ref!);
  }
  for (const one of open) if (one.phase === Phase.HELD || isFailing(one)) kept.set(one.ref.uid, one.ref);
  return [...kept.values(), ...ends.filter(({ uid }) => !kept.has(uid))].filter(({ uid }) => uid !== root);
}

/** Whether the root itself blocks its cascade. The tree does not have it. */
export const blocksItself = ({ verdict, node }: ExplainObjectResponse): boolean =>
  BLOCKED.includes(verdict) || (node !== undefined && waitsForController(node));

/** Whether the root only waits for what is below it: the blockers below then say more. */
export const waitsBelow = ({ reasons }: ExplainObjectResponse): boolean =>
  reasons.every(({ code }) => code === Code.BLOCKING_DEPENDENTS);
