// How far the graph has each collection.

import {
  type ListCoverageResponse_Collection as Collection,
  ListCoverageResponse_State as Coverage,
} from "../generated/ownergraph/graph/v1beta1/graph_service_pb.ts";
import type { GroupResource } from "../generated/ownergraph/type/v1beta1/type_pb.ts";
import { instant } from "./time.ts";
import type { State } from "./words.ts";

/** Quiet collections get a bookmark about once a minute. A collection without any sign for longer than this is late. */
export const LATE_MS = 90_000;

/** `pods`, `deployments.apps`. */
export const collectionName = (of: GroupResource | undefined): string =>
  of?.group ? `${of.resource}.${of.group}` : (of?.resource ?? "");

export interface Lag {
  name: string;
  state: State;
  /** In seconds; undefined before the first list. */
  seconds: number | undefined;
}

/** The order of states, the worst first, with what a reader has to know of each. */
const STATES: [Coverage, State][] = [
  [Coverage.FAILED, { word: "failed", tone: "bad" }],
  [Coverage.STALE, { word: "stale", tone: "bad" }],
  [Coverage.LISTING, { word: "listing", tone: "wait" }],
  [Coverage.UNSPECIFIED, { word: "unknown", tone: "wait" }],
];
const LATE: State = { word: "late", tone: "bad" };
const SYNCED: State = { word: "synced", tone: "ok" };

/** The lags of all collections that the service should follow, the worst first. `now` is a time of the cluster. */
export function lagsOf(collections: Collection[], now: number): Lag[] {
  const ranked = collections
    .filter(({ state }) => state !== Coverage.IGNORED)
    .map(({ groupResource: of, state, progressTime }) => {
      const at = instant(progressTime);
      const seconds = at === undefined ? undefined : Math.max(0, now - at) / 1000;
      const rank = STATES.findIndex(([one]) => one === state);
      const synced = (seconds ?? Infinity) * 1000 > LATE_MS ? LATE : SYNCED;
      return {
        name: collectionName(of),
        seconds,
        state: STATES[rank]?.[1] ?? synced,
        rank: rank < 0 ? STATES.length : rank,
      };
    });
  ranked.sort((a, b) => a.rank - b.rank || (b.seconds ?? 1e12) - (a.seconds ?? 1e12));
  return ranked.map(({ name, seconds, state }) => ({ name, seconds, state }));
}
