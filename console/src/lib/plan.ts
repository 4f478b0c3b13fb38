// Plans of deletions.

import {
  type PreviewDeletionResponse,
  type PreviewDeletionResponse_Entry as Entry,
  PreviewDeletionResponse_Effect as Effect,
} from "../generated/ownergraph/graph/v1beta1/graph_service_pb.ts";
import { type ObjectRef, PropagationPolicy } from "../generated/ownergraph/type/v1beta1/type_pb.ts";
import { paged } from "./asked.svelte.ts";
import { graph } from "./clients.ts";
import { count, counted } from "./time.ts";

export type Policy = "Background" | "Foreground" | "Orphan";
export const POLICIES: { name: Policy; value: PropagationPolicy; sentence: string }[] = [
  {
    name: "Background",
    value: PropagationPolicy.BACKGROUND,
    sentence: "the object goes at once, and its dependents afterwards.",
  },
  {
    name: "Foreground",
    value: PropagationPolicy.FOREGROUND,
    sentence: "the object waits until its blocking dependents are gone.",
  },
  {
    name: "Orphan",
    value: PropagationPolicy.ORPHAN,
    sentence: "the object goes; its dependents lose their reference and stay.",
  },
];

/** Maximum number of pages of a plan that the page shows. Totals cover all of them. */
const PAGES_MAX = 30;

export interface Planned {
  first: PreviewDeletionResponse;
  entries: Entry[];
  /** Whether there are more entries than these. */
  more: boolean;
}

export async function planOf(ref: ObjectRef, policy: Policy, signal: AbortSignal): Promise<Planned> {
  const propagationPolicy = POLICIES.find(({ name }) => name === policy)!.value;
  const request = {
    targets: [ref],
    propagationPolicy,
    pageSize: 1000,
    consistency: { requirement: { case: "latest" as const, value: true }, maxWait: { seconds: 10n } },
  };
  const read = (pageToken: string) => graph.previewDeletion({ ...request, pageToken }, { signal });
  const { first, all, more } = await paged(PAGES_MAX, read, ({ entries }) => entries);
  return { first, entries: all, more };
}

/** Why a plan is not certain, as sentences: the back end refuses the deletion then, as the command does. */
export function doubts({ meta, undecidedBy, missingUids, redactedCount, totals }: PreviewDeletionResponse): string[] {
  const said: string[] = [];
  const unseen = new Set(
    [...(meta?.unsynced ?? []), ...undecidedBy].map(({ group, resource }) =>
      group ? `${resource}.${group}` : resource,
    ),
  );
  if (unseen.size > 0) said.push(`The plan may lack objects: these kinds are incomplete: ${[...unseen].join(", ")}.`);
  if (missingUids.length > 0) said.push("The graph does not contain the object yet.");
  if (redactedCount > 0)
    said.push(
      `${count(redactedCount)} more ${redactedCount === 1 ? "object is" : "objects are"} affected that you may not see.`,
    );
  const of = (effect: Effect) =>
    totals.filter((total) => total.effect === effect).reduce((sum, total) => sum + total.count, 0n);
  const [unknown, held] = [of(Effect.UNKNOWN), of(Effect.HELD)];
  if (unknown > 0n) said.push(`The effect on ${counted(unknown, "object")} is unknown.`);
  if (held > 0n) said.push(`${counted(held, "object")} ${held === 1n ? "is" : "are"} held.`);
  return said;
}
