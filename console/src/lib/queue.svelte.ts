// The open decisions, and what ended, from one stream of the decision log and the events that it keeps.

import {
  type DecisionEvent,
  EventView,
  Phase,
  type WatchDecisionsResponse,
} from "../generated/ownergraph/decision/v1beta1/decision_service_pb.ts";
import { ItemKind, Outcome } from "../generated/ownergraph/work/v1beta1/work_service_pb.ts";
import type { ObjectRef } from "../generated/ownergraph/type/v1beta1/type_pb.ts";
import { app } from "./app.svelte.ts";
import { decisions } from "./clients.ts";
import type { Filter } from "./decisions.ts";
import { Feed } from "./feed.svelte.ts";
import { instant, millis } from "./time.ts";
import { isOpen } from "./words.ts";

export interface Open {
  ref: ObjectRef;
  kind: string;
  phase: Phase;
  /** The number of the delivery; 0 before the first. */
  attempt: number;
}
export interface Done {
  at: number;
  cause: DecisionEvent["cause"];
  kind: string;
  uid: string;
  /** From the deletion of the root, in milliseconds; undefined if that is unknown. */
  took: number | undefined;
}

const ENDED_MAX = 20_000;
/** Copied at most once in this time: a burst of decisions is one change of the page. */
const TOGETHER_MS = 500;

/** In the order of time. Beyond the maximum, the oldest quarter goes. */
function newest<T>(all: Map<string, T>, at: (one: T) => number): Map<string, T> {
  const sorted = [...all].sort(([, a], [, b]) => at(a) - at(b));
  if (sorted.length > ENDED_MAX) sorted.splice(0, sorted.length - (ENDED_MAX * 3) / 4);
  return new Map(sorted);
}

export class Queue {
  open = $state.raw<ReadonlyMap<string, Open>>(new Map());
  /** Whether `open` has had all open decisions. */
  complete = $state(false);
  /** The oldest first. */
  done = $state.raw<Done[]>([]);
  /** The times of attempts that the API server refused with 429 (Too Many Requests), the oldest first. */
  throttled = $state.raw<number[]>([]);
  feed: Feed<WatchDecisionsResponse>;
  #open = new Map<string, Open>();
  /** By decision: the log and the stream may both have an event. */
  #done = new Map<string, Done>();
  /** By attempt. */
  #throttled = new Map<string, number>();
  #whole = false;
  #timer: ReturnType<typeof setTimeout> | undefined;

  /** `kept` reads what ended before the stream began: at the start, and after each break. */
  constructor(include: Filter[], kept: () => Promise<DecisionEvent[]>) {
    this.feed = new Feed(
      (signal) => {
        // The open decisions come whole with each call; what is shown stays until they are there.
        this.#open.clear();
        this.#whole = false;
        return decisions.watchDecisions(
          { start: { case: "openThenFollow", value: true }, include, acceptGaps: true, view: EventView.BASIC },
          { signal },
        );
      },
      ({ event }) => {
        if (event.case === "goingAway") return millis(event.value.reconnectAfter);
        if (event.case === "batch") this.take(event.value.events);
        else if (event.case === "gap") this.#open.clear();
        else if (event.case === "bookmark" && event.value.snapshotComplete) {
          this.#whole = true;
          this.#show();
          // Some callers may not list: the stream alone then gives the numbers.
          kept().then(
            (events) => this.take(events),
            () => {},
          );
        }
      },
    );
  }

  /** Events of the stream, or kept ones in any order. */
  take(events: DecisionEvent[]): void {
    for (const event of events) {
      const { decisionId, phase, target } = event;
      if (!target) continue;
      app.seen(event.eventTime);
      if (event.report?.outcome === Outcome.THROTTLED)
        this.#throttled.set(`${decisionId} ${event.attempt}`, instant(event.eventTime) ?? app.clock);
      if (phase === Phase.CONFIRMED && event.kind === ItemKind.DELETE) this.#end(event, target);
      if (isOpen(phase)) this.#open.set(decisionId, { ref: target, kind: target.kind, phase, attempt: event.attempt });
      else this.#open.delete(decisionId);
    }
    this.#show();
  }

  #end(
    { decisionId, cause, eventTime, rootDeletionTime }: DecisionEvent,
    { kind, uid }: { kind: string; uid: string },
  ) {
    const at = instant(eventTime) ?? app.clock;
    const began = instant(rootDeletionTime);
    this.#done.set(decisionId, {
      at,
      cause,
      kind,
      uid,
      took: began === undefined ? undefined : Math.max(0, at - began),
    });
  }

  #show(): void {
    this.#timer ??= setTimeout(() => {
      this.#timer = undefined;
      if (this.#whole) {
        this.complete = true;
        this.open = new Map(this.#open);
      }
      this.#done = newest(this.#done, ({ at }) => at);
      this.done = [...this.#done.values()];
      this.#throttled = newest(this.#throttled, (at) => at);
      this.throttled = [...this.#throttled.values()];
    }, TOGETHER_MS);
  }
}
