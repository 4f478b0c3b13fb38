// The collector's verdict in sentences: those of `kubectl ownergraph why`.

import {
  type ExplainObjectResponse,
  type ListOwnersResponse,
  type Node,
  type PendingWork,
  type Reason,
  NodeState,
  Reason_Code as Code,
  Verdict,
} from "../generated/ownergraph/graph/v1beta1/graph_service_pb.ts";
import type { ObjectRef } from "../generated/ownergraph/type/v1beta1/type_pb.ts";
import { count, counted, instant, moment, span } from "./time.ts";
import { shown, visible } from "./words.ts";

const NAMED_MAX = 3;

function some(objects: ObjectRef[], all = objects.length): string {
  const named = objects.slice(0, NAMED_MAX).map(shown);
  const more = all - named.length;
  return more > 0 ? `${named.join(", ")} and ${more} more` : named.join(", ");
}

/** The number of owners that the page lists. */
export const OWNERS_SHOWN = 20;
/** The number of references to owners that the page leaves out. The answer itself has the first 100 of them. */
export function ownersLeft({ node, owners }: ExplainObjectResponse): number {
  if (owners.length === 0) return 0;
  return Math.max(node?.ownerCount ?? 0, owners.length) - Math.min(owners.length, OWNERS_SHOWN);
}

/** What a page of owners leaves out, as sentences. */
export function ownerGaps({ owners, nextPageToken, redactedCount }: ListOwnersResponse): string[] {
  const said: string[] = [];
  if (nextPageToken) said.push(`There are more owners than the ${count(owners.length)} that the page reads.`);
  if (redactedCount > 0) said.push(`You may not see ${counted(redactedCount, "more owner")}.`);
  return said;
}

export function headline(answer: ExplainObjectResponse, now: number): string {
  const node = answer.node;
  const marked = node?.deleteTime ? `, marked for deletion ${span(now - instant(node.deleteTime)!)} ago` : "";
  const ofContents = answer.reasons.some(({ code }) => code === Code.CONTENTS_REMAIN);
  switch (answer.verdict) {
    case Verdict.KEPT:
      return node?.state === NodeState.VIRTUAL ? "is there, and its collection has not shown it yet" : "stays";
    case Verdict.UNOWNED:
      return "stays: it has no owners, so the collector never deletes it";
    case Verdict.COLLECTABLE:
      if (!answer.work) return "would be deleted";
      if (answer.work.executor) return "is being deleted: an executor has it";
      return "will be deleted: the decision waits to be granted";
    case Verdict.UNDECIDED:
      return "stays for now: it is not known yet whether to delete it";
    case Verdict.HELD:
      return "would be deleted, but is held";
    case Verdict.IN_PROGRESS:
      if (node?.orphaningDependents)
        return `is being deleted${marked}: its dependents lose their reference first, and stay`;
      return `is going${marked}`;
    case Verdict.BLOCKED:
      if (node?.deletingDependents) return `is being deleted${marked}, and waits until its dependents are deleted`;
      if (ofContents) return `is terminating${marked}, and is removed when it is empty`;
      return `is terminating${marked}, and blocked`;
    case Verdict.PARKED:
      return "should be deleted, but the API server refuses the request as invalid";
    case Verdict.GONE: {
      if (!answer.departure) return "is gone";
      const at = instant(answer.departure.time);
      const when = at === undefined ? "" : ` ${span(now - at)} ago`;
      return `was deleted${when}${answer.departure.byUs ? " by the collector" : ", not by the collector"}`;
    }
    default:
      return "has a verdict that this version does not know; upgrade it";
  }
}

export function reasonWords(reason: Reason): string {
  const who = some(reason.related, Number(reason.relatedCount));
  const detail = visible(reason.detail);
  const about = (words: string) => (detail ? `${words}: ${detail}` : words);
  const beside = (words: string) => (detail ? `${words} (${detail})` : words);
  const one = reason.relatedCount === 1n;
  switch (reason.code) {
    case Code.SOLID_OWNER:
      return `${who} own${one ? "s" : ""} it`;
    case Code.OWNER_UNVERIFIED:
      return beside(`whether ${who} exist${one ? "s" : ""} is not known yet`);
    case Code.OWNER_KIND_UNRESOLVED:
      return beside(`the API server does not serve the kind of ${who || "the owner"}`);
    case Code.COLLECTION_UNSYNCED:
      return who ? beside(`the collection of ${who} cannot be listed`) : about("a collection cannot be listed");
    case Code.PAUSED:
    case Code.PROTECTED:
    case Code.AWAITING_APPROVAL:
    case Code.GATED:
    case Code.OVER_BUDGET: {
      const until = reason.until ? `, until ${moment(instant(reason.until)!)}` : "";
      return guardOf(reason) ? `held by ${detail}${until}` : about("held");
    }
    case Code.FINALIZER_PRESENT:
      return `finalizer ${detail}`;
    case Code.BLOCKING_DEPENDENTS:
      return `${who} ${one ? "has" : "have"} to be deleted first`;
    case Code.CYCLE:
      return "it is in a cycle of blocking references, which the collector is about to break";
    case Code.COLLECTION_IN_DOUBT:
    case Code.UNDONE:
      return detail;
    case Code.FORBIDDEN:
      return about("the executors lack a right");
    case Code.ADMISSION_DENIED:
      return about("a webhook or an admission policy refuses");
    case Code.BACKOFF:
      return detail ? `${detail}; the attempt is retried` : "an attempt failed, and is retried";
    case Code.NO_EXECUTOR:
      return detail || "no executor is connected";
    case Code.AWAITING_OWN_WRITE:
      return "its deletion was accepted, and the watch has not shown it yet";
    case Code.INVALID_REFERENCE:
      return about(`the reference to ${who || "an owner"} is invalid`);
    case Code.TOO_MANY_REFERENCES:
      return about("it has more owner references than the collector reads");
    case Code.HOLD_ANNOTATION:
      return about("an annotation holds it");
    case Code.OWNERS_ABSENT:
      return beside(`${who} ${one ? "is" : "are"} gone`);
    case Code.OWNERS_WAITING:
      return `${who} wait${one ? "s" : ""} for its deletion`;
    case Code.DEPENDENTS_TO_ORPHAN:
      return `${who} ${one ? "has" : "have"} yet to lose a reference`;
    case Code.OWNER_UNREADABLE:
      return beside(`reads of ${who || "the owner"} fail`);
    case Code.THROTTLED:
      return about("the API server answers 429 (Too Many Requests)");
    case Code.NOT_LEADING:
      return about("this replica does not lead; the leader carries out decisions");
    case Code.GRANTS_STOPPED:
      return about("nothing is carried out at the moment");
    case Code.OBSERVE_ONLY:
      return "the collector only observes, and carries nothing out";
    case Code.GRACE_PERIOD:
      return "it is removed when its grace period is over";
    case Code.NEVER_OBSERVED:
      return `only references to it are known: ${who} ${one ? "has" : "have"} one`;
    case Code.DELETED:
      return about("it was deleted");
    case Code.CONTENTS_REMAIN:
      if (reason.relatedCount === 0n)
        return "the API server reports that it is not empty, but the graph has no object in it";
      return `${beside(`${counted(reason.relatedCount, "object")} in it`)}, of which finalizers keep ${some(reason.related) || "none"}`;
    default:
      return about("for a reason that this version does not know");
  }
}

/** The guard that a reason names, as protections/NAME. */
export function guardOf(reason: Reason): string | undefined {
  const guard = reason.detail.split(": ", 1)[0];
  return guard?.includes("/") && reason.detail.includes(": ") ? guard : undefined;
}

/** What a person can do about a reason without harm. Empty if there is nothing to do. */
export function nextStep(of: Verdict, node: Node | undefined, reason: Reason | undefined): string {
  switch (reason?.code) {
    case Code.SOLID_OWNER:
      return of === Verdict.KEPT ? "It is deleted when the last of its owners is gone." : "";
    case Code.INVALID_REFERENCE:
      return "Correct the reference, or remove it.";
    case Code.TOO_MANY_REFERENCES:
      return "Remove references: the object is not collected while it has so many.";
    case Code.OWNER_KIND_UNRESOLVED:
      return "Install the definition of the owner's kind, or remove the reference.";
    case Code.COLLECTION_UNSYNCED:
      return "The collector goes on as soon as that collection can be listed. Repair its APIService, or the rights.";
    case Code.OWNER_UNVERIFIED:
      return "No action needed: the collector is checking the owner.";
    case Code.OWNER_UNREADABLE:
      return "Allow the collector to read the owner. It retries by itself.";
    case Code.FINALIZER_PRESENT:
      return "Find out why the controller of that finalizer does not remove it. Removal by hand leaves its cleanup undone.";
    case Code.BLOCKING_DEPENDENTS:
      return node?.deletingDependents ? "Look at the objects that must go first." : "";
    case Code.CONTENTS_REMAIN:
      return "Look at the objects in it that have finalizers.";
    case Code.NO_EXECUTOR:
      return "Start an executor-service, or find out why none is connected.";
    case Code.FORBIDDEN:
      return "Grant the executors the right.";
    case Code.UNDONE:
      return "Find the controller or webhook that restores it, in its managed fields.";
    case Code.ADMISSION_DENIED:
      return "Ask the operator of that webhook or policy.";
    case Code.PAUSED:
    case Code.PROTECTED:
    case Code.OVER_BUDGET:
    case Code.GATED:
      return "Ask the author of the guard, or release it on the page Guards.";
    case Code.AWAITING_APPROVAL:
      return "Look at the cascade on the page Guards, and approve it.";
    case Code.HOLD_ANNOTATION:
      return "Remove the annotation ownergraph.dev/hold when the object may go.";
  }
  return "";
}

/** The group under which the page Stuck shows an object: who has to act. */
export function causeGroup(reason: Reason | undefined): string {
  switch (reason?.code) {
    case Code.FINALIZER_PRESENT:
      return "Finalizer";
    case Code.ADMISSION_DENIED:
      return "Webhook or policy";
    case Code.COLLECTION_UNSYNCED:
    case Code.COLLECTION_IN_DOUBT:
    case Code.OWNER_KIND_UNRESOLVED:
      return "Missing API";
    case Code.PAUSED:
    case Code.PROTECTED:
    case Code.AWAITING_APPROVAL:
    case Code.GATED:
    case Code.OVER_BUDGET:
    case Code.HOLD_ANNOTATION:
      return "Guard";
    case Code.FORBIDDEN:
    case Code.OWNER_UNREADABLE:
      return "Permission";
    case Code.BLOCKING_DEPENDENTS:
    case Code.CONTENTS_REMAIN:
    case Code.CYCLE:
      return "Other objects first";
    default:
      return "Other";
  }
}

export function workWords(work: PendingWork, now: number): string {
  const words = [work.action.replaceAll("_", " ")];
  if (work.decideTime) words[0] += `, decided ${span(now - instant(work.decideTime)!)} ago`;
  if (work.executor)
    words.push(
      work.startTime ? `${work.executor} began ${span(now - instant(work.startTime)!)} ago` : `${work.executor} has it`,
    );
  if (work.attempts > 1) words.push(`attempt ${work.attempts}`);
  if (work.retryTime) words.push(`retried in ${span(instant(work.retryTime)! - now)}`);
  return words.join(", ");
}
