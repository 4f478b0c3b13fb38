// The words, signs and tones of states. A tone is a colour; each has a sign and a word beside it.

import {
  type Edge,
  type Node,
  Collecting,
  NodeState,
  OwnerStanding,
  Verdict,
} from "../generated/ownergraph/graph/v1beta1/graph_service_pb.ts";
import {
  PreviewDeletionResponse_Effect as Effect,
  PreviewDeletionResponse_GuardEffect as GuardEffect,
} from "../generated/ownergraph/graph/v1beta1/graph_service_pb.ts";
import {
  Cause,
  Disagreement_Class,
  type GetParityResponse,
  Phase,
} from "../generated/ownergraph/decision/v1beta1/decision_service_pb.ts";
import { Guard_Kind } from "../generated/ownergraph/admin/v1beta1/admin_service_pb.ts";
import { ItemKind } from "../generated/ownergraph/work/v1beta1/work_service_pb.ts";
import type { ObjectRef } from "../generated/ownergraph/type/v1beta1/type_pb.ts";

export type Tone = "ok" | "wait" | "bad" | "held" | "none";
export interface State {
  word: string;
  tone: Tone;
}

export const SIGNS: Record<Tone, string> = { ok: "●", wait: "◐", bad: "▲", held: "■", none: "○" };

/** The state of an object as the collector sees it, in the words of kubectl's column GC. */
export function stateOf(node: Node): State {
  switch (node.state) {
    case NodeState.TERMINATING:
      if (node.orphaningDependents) return { word: "orphaning", tone: "bad" };
      if (node.deletingDependents && node.blockingDependentCount > 0)
        return { word: `blocked(${node.blockingDependentCount})`, tone: "bad" };
      return { word: "deleting", tone: "bad" };
    case NodeState.VIRTUAL:
      return { word: "not seen", tone: "none" };
    case NodeState.GONE:
      return { word: "gone", tone: "none" };
  }
  switch (node.collecting) {
    case Collecting.QUEUED:
      return { word: "queued", tone: "wait" };
    case Collecting.HELD:
      return { word: "held", tone: "held" };
    case Collecting.LEASED:
      return { word: "deleting", tone: "wait" };
  }
  return { word: "current", tone: "ok" };
}

/** A state without its number: `blocked(3)` and `blocked(4)` are one. */
export const stateName = ({ word }: State): string => word.replace(/\(\d+\)/, "");

const STATUSES = {
  Current: "ok",
  InProgress: "wait",
  Failed: "bad",
  Terminating: "bad",
  Unknown: "none",
  NotFound: "none",
} satisfies Record<string, Tone>;
/** The words of kstatus. */
export type Status = keyof typeof STATUSES;
export const kstatus = (word: Status): State => ({ word, tone: STATUSES[word] });

const STANDINGS: Record<OwnerStanding, State> = {
  [OwnerStanding.UNSPECIFIED]: { word: "unknown", tone: "none" },
  [OwnerStanding.SOLID]: { word: "solid", tone: "ok" },
  [OwnerStanding.DANGLING]: { word: "dangling", tone: "bad" },
  [OwnerStanding.WAITING]: { word: "waiting", tone: "wait" },
  [OwnerStanding.UNVERIFIED]: { word: "unverified", tone: "wait" },
  [OwnerStanding.INVALID_SCOPE]: { word: "invalid scope", tone: "bad" },
  [OwnerStanding.WRONG_NAMESPACE]: { word: "wrong namespace", tone: "bad" },
  [OwnerStanding.KIND_UNRESOLVED]: { word: "kind not served", tone: "bad" },
  [OwnerStanding.COORDINATES_MISMATCH]: { word: "other object", tone: "bad" },
  [OwnerStanding.ORPHANING]: { word: "orphaning", tone: "wait" },
};
export const standing = (of: OwnerStanding): State => STANDINGS[of] ?? STANDINGS[OwnerStanding.UNSPECIFIED];

export function edgeWords(edge: Edge): string {
  const words = [standing(edge.standing).word];
  if (edge.reference?.controller) words.push("controller");
  if (edge.reference?.blockOwnerDeletion) words.push("blocking");
  return words.join(", ");
}

const VERDICTS: Record<Verdict, State> = {
  [Verdict.UNSPECIFIED]: { word: "unknown", tone: "none" },
  [Verdict.KEPT]: { word: "kept", tone: "ok" },
  [Verdict.UNOWNED]: { word: "unowned", tone: "ok" },
  [Verdict.COLLECTABLE]: { word: "queued", tone: "wait" },
  [Verdict.UNDECIDED]: { word: "undecided", tone: "wait" },
  [Verdict.HELD]: { word: "held", tone: "held" },
  [Verdict.IN_PROGRESS]: { word: "deleting", tone: "wait" },
  [Verdict.BLOCKED]: { word: "blocked", tone: "bad" },
  [Verdict.PARKED]: { word: "refused", tone: "bad" },
  [Verdict.GONE]: { word: "gone", tone: "none" },
};
export const verdict = (of: Verdict): State => VERDICTS[of] ?? VERDICTS[Verdict.UNSPECIFIED];

/** Effects of a plan, in the order in which a reader needs them. */
export const EFFECTS: [Effect, State, string][] = [
  [Effect.DELETE, { word: "goes", tone: "bad" }, "is deleted"],
  [Effect.WAITS, { word: "waits", tone: "wait" }, "is marked for deletion, and waits"],
  [Effect.HELD, { word: "held", tone: "held" }, "stays as long as a guard or an annotation holds it"],
  [Effect.UNKNOWN, { word: "unknown", tone: "none" }, "is undecided, because facts are missing"],
  [Effect.ORPHANED, { word: "orphaned", tone: "ok" }, "stays, and loses the reference to its owner"],
  [Effect.REFERENCE_REMOVED, { word: "stays", tone: "ok" }, "stays, because another owner keeps it"],
];
export function effect(of: Effect): State {
  return EFFECTS.find(([effect]) => effect === of)?.[1] ?? { word: "unknown", tone: "none" };
}

export const GUARD_EFFECTS: Record<GuardEffect, string> = {
  [GuardEffect.UNSPECIFIED]: "concerns",
  [GuardEffect.HELD]: "holds",
  [GuardEffect.AWAITS_APPROVAL]: "waits for a person's approval of",
  [GuardEffect.ASKED]: "is asked about",
  [GuardEffect.OVER_BUDGET]: "has no room now for",
};

const PHASES: Record<Phase, State> = {
  [Phase.UNSPECIFIED]: { word: "unknown", tone: "none" },
  [Phase.PROPOSED]: { word: "proposed", tone: "wait" },
  [Phase.HELD]: { word: "held", tone: "held" },
  [Phase.LEASED]: { word: "leased", tone: "wait" },
  [Phase.SUCCEEDED]: { word: "succeeded", tone: "ok" },
  [Phase.FAILED]: { word: "failed", tone: "bad" },
  [Phase.PARKED]: { word: "parked", tone: "bad" },
  [Phase.SUPERSEDED]: { word: "superseded", tone: "none" },
  [Phase.CONFIRMED]: { word: "confirmed", tone: "ok" },
  [Phase.AWAITING_FINALIZERS]: { word: "awaits finalizers", tone: "bad" },
  [Phase.RELEASED]: { word: "released", tone: "wait" },
  [Phase.DISAGREED]: { word: "disagreed", tone: "bad" },
};
export const phase = (of: Phase): State => PHASES[of] ?? PHASES[Phase.UNSPECIFIED];
/** Whether a decision in this phase still waits for its end. */
export const isOpen = (of: Phase): boolean =>
  [Phase.PROPOSED, Phase.HELD, Phase.LEASED, Phase.FAILED, Phase.PARKED, Phase.RELEASED].includes(of);

/** The name of an enum's value as a phrase: `OWNERS_GONE` is "owners gone". */
function phrase(names: Record<number, string | undefined>, value: number): string {
  return (names[value] ?? `${value}`).toLowerCase().replaceAll("_", " ");
}
export const cause = (of: Cause): string => (of === Cause.UNSPECIFIED ? "-" : phrase(Cause as never, of));
export const action = (of: ItemKind): string => (of === ItemKind.UNSPECIFIED ? "-" : phrase(ItemKind as never, of));
export const guardKind = (of: Guard_Kind): string => phrase(Guard_Kind as never, of);
/** The decisions that agree, and their share in percent. It is rounded down: with a disagreement, it is never 100 %. */
export function agreement(of: { agreed: bigint; theirsFirst: bigint; comparable: bigint }): [bigint, string] {
  const agreed = of.agreed + of.theirsFirst;
  if (of.comparable === 0n) return [agreed, "-"];
  return [agreed, `${(Number((agreed * 10_000n) / of.comparable) / 100).toFixed(2)} %`];
}
/** The unknown disagreements, and those of them that earlier leaders counted, which no list of this leader has. */
export function unexplained(of: GetParityResponse): [bigint, bigint] {
  const all = of.classes
    .filter((one) => one.class === Disagreement_Class.UNKNOWN)
    .reduce((sum, one) => sum + one.oursOnly + one.theirsOnly, 0n);
  const ofTerm = of.collections.reduce((sum, one) => sum + one.unknown, 0n);
  return [all, all > ofTerm ? all - ofTerm : 0n];
}
export const disagreement = (of: Disagreement_Class): string => phrase(Disagreement_Class as never, of);

/**
 * A text from the cluster with its invisible characters written out. A reference can name an owner as it likes, with
 * controls and with marks that turn the direction of writing.
 */
export const visible = (text: string): string =>
  text.replace(
    /[\p{Cc}\p{Cf}\u2028\u2029]/gu,
    (character) => `\\u{${character.codePointAt(0)!.toString(16).padStart(4, "0")}}`,
  );

/** `Pod shop/web-1`, `Node n1`. */
export function shown(ref: ObjectRef | undefined): string {
  if (!ref) return "an object";
  const name = ref.name === "" ? `uid ${ref.uid}` : ref.name;
  return visible(`${ref.kind || ref.resource} ${ref.namespace === "" ? "" : `${ref.namespace}/`}${name}`);
}

/** The shared part of the names of siblings: without hashes, random suffixes and ordinals. */
export function pattern(name: string): string {
  const parts = name.split("-");
  let kept = parts.length;
  const isVariable = (part: string) =>
    /^\d+$/.test(part) ||
    (/^[a-z0-9]{4,10}$/.test(part) && /\d/.test(part)) ||
    /^[bcdfghjklmnpqrstvwxz2456789]{5}$/.test(part);
  while (kept > 1 && isVariable(parts[kept - 1]!)) kept -= 1;
  return kept === parts.length ? name : `${parts.slice(0, kept).join("-")}-*`;
}
