// What is wrong with the collector, in the words of `ownergraph status`.

import {
  type DecisionLogStatus,
  DecisionLogStatus_State as LogState,
  type GetStatusResponse,
} from "../generated/ownergraph/admin/v1beta1/admin_service_pb.ts";
import type { GroupResource } from "../generated/ownergraph/type/v1beta1/type_pb.ts";
import { collectionName } from "./coverage.ts";
import { count, millis, span } from "./time.ts";
import { shown, visible } from "./words.ts";

export interface Finding {
  words: string;
  tone: "bad" | "wait";
}

/** Time after which the loop counts as stopped. `/livez` has the same limit. */
const LOOP_STANDS_STILL_MS = 30_000;
/** Age from which ready work counts as stalled. An executor with capacity gets work within moments. */
const STALLED_MS = 30_000;
/** Number of attempts from which a decision counts as stalled. */
const FAILS_OFTEN = 5;
/** How many of one kind of finding are shown. */
const EACH_MAX = 5;

/** All that a person has to look at. `direct`: no graph service runs, so grants are no subject. */
export function findings(status: GetStatusResponse, direct: boolean): Finding[] {
  const bad = (words: string): Finding => ({ words, tone: "bad" });
  const { grantsStopped, pausesUnknown, inconsistentReads, untrueReports, keptApart, decisionLog } = status;
  const progress = stopped(status);
  const log = decisionLog && logTrouble(decisionLog);
  return [
    ...(grantsStopped && !direct ? [bad(`Nothing is carried out: ${visible(grantsStopped)}`)] : []),
    ...(pausesUnknown ? [bad(`Deletions are suspended: ${visible(pausesUnknown)}`)] : []),
    ...(progress ? [bad(progress)] : []),
    ...some(inconsistentReads, "INCONSISTENT reads", ({ groupResource, detail }) =>
      visible(`INCONSISTENT reads of ${collectionName(groupResource)}: ${detail}`),
    ).map(bad),
    ...some(untrueReports, "executors with UNTRUE reports", ({ identity, count: many, refusedFor }) => {
      const refused = refusedFor ? `, refused for another ${span(millis(refusedFor)!)}` : "";
      const { executor = "", incarnation = "" } = identity ?? {};
      return `UNTRUE: ${count(many)} reports of executor ${visible(`${executor} (process ${incarnation})`)}${refused}`;
    }).map(bad),
    ...(log ? [bad(log)] : []),
    ...some(keptApart, "collections with other resourceVersions", apart).map((words): Finding => ({
      words,
      tone: "wait",
    })),
  ];
}

const apart = (of: GroupResource) =>
  `The resourceVersions of ${visible(collectionName(of))} do not match those of other collections: ` +
  "if it has a separate etcd, add it to --separate-stores";

/** Why the collector makes no progress; undefined if it does. */
function stopped(status: GetStatusResponse): string | undefined {
  const { loopIdle, stalledFor, obstacles, executors, term, oldestQueuedAge, queuedItems, heldItems } = status;
  const [idle, stalled] = [millis(loopIdle) ?? 0, millis(stalledFor) ?? 0];
  if (idle > LOOP_STANDS_STILL_MS) return `STOPPED: the collector's loop has made no progress for ${span(idle)}`;
  if (stalled >= STALLED_MS)
    return `STALLED: work is ready, but no attempt ended and nothing was withdrawn for ${span(stalled)}`;
  const worst = [...obstacles].sort((a, b) => b.attempts - a.attempts)[0];
  if (worst && worst.attempts >= FAILS_OFTEN) {
    const { what, object, attempts, why } = worst;
    return `FAILING: ${visible(what)} of ${shown(object)} was tried ${count(attempts)} times: ${visible(why)}`;
  }
  if (executors === 0 && term && oldestQueuedAge && queuedItems > heldItems)
    return "STOPPED: work is ready, and no executor is connected";
  return undefined;
}

const LOG: Record<LogState, string> = {
  [LogState.UNSPECIFIED]: "in a state that this version does not know",
  [LogState.IN_MEMORY]: "in the leader's memory",
  [LogState.CONNECTING]: "on JetStream, not connected yet",
  [LogState.WRITING]: "on JetStream",
  [LogState.CATCHING_UP]: "on JetStream, which is catching up",
  [LogState.AWAY]: "on JetStream, which is unreachable",
};

/** What is wrong with the decision log; undefined if nothing is. */
function logTrouble({ state, required, problem, waitingEvents, lostEvents }: DecisionLogStatus): string | undefined {
  const isAway = state === LogState.AWAY;
  if (!isAway && !problem && lostEvents === 0n) return undefined;
  const words = [`Decisions are ${LOG[state] ?? LOG[LogState.UNSPECIFIED]}`];
  if (isAway) words.push(required ? "; grants are suspended" : "; grants continue");
  if (problem) words.push(` (${visible(problem)})`);
  if (waitingEvents > 0n) words.push(`, ${count(waitingEvents)} wait`);
  if (lostEvents > 0n) words.push(`, ${count(lostEvents)} lost`);
  return words.join("");
}

/** The first of a list in words, and the number of the others. */
function some<T>(all: T[], what: string, words: (one: T) => string): string[] {
  const others = all.length - EACH_MAX;
  return [...all.slice(0, EACH_MAX).map(words), ...(others > 0 ? [`And ${count(others)} more of the ${what}`] : [])];
}
