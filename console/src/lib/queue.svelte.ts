// The open decisions, and what ended, from one stream of the decision log and the events that it keeps.

import {
  Cause,
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
import { type Done, Ended, ENDED_MAX, newest, type Timed } from "./ended.ts";
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

/** Copied at most once in this time: a burst of decisions is one change of the page. */
const TOGETHER_MS = 500;

export class Queue {
  open = $state.raw<ReadonlyMap<string, Open>>(new Map());
  /** Whether `open` has had all open decisions. */
  complete = $state(false);
  /** The newest objects that are gone, the oldest first. */
  done = $state.raw<Done[]>([]);
  /** The log has more than the page has read of it: the numbers of `ended` are too low. */
  partial = $state(false);
  /** The times of attempts that the API server refused with 429 (Too Many Requests), the oldest first. */
  throttled = $state.raw<number[]>([]);
  feed: Feed<WatchDecisionsResponse>;
  #open = new Map<string, Open>();
  #ended = new Ended();
  /** By attempt: the log and the stream may both have an event. */
  #throttled = new Map<string, Timed>();
  #whole = false;
  /** The kept events were read to the oldest one. */
  #recalled = false;
  #signal: AbortSignal | undefined;
  #timer: ReturnType<typeof setTimeout> | undefined;

  /**
   * `kept` reads what ended before the stream began: at the start, and after each break. The object with the uid `root`
   * is not counted.
   */
  constructor(
    include: Filter[],
    kept?: (signal: AbortSignal) => AsyncIterable<DecisionEvent[]>,
    private readonly root = "",
  ) {
    this.feed = new Feed(
      (signal) => {
        // The open decisions come whole with each call; what is shown stays until they are there.
        this.#open.clear();
        this.#whole = false;
        this.#signal = signal;
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
          if (kept) this.recall(kept(this.#signal!)).catch(() => {});
        }
      },
    );
  }

  /** What ended, with the last event: at least all of `done`. */
  get ended(): Ended {
    void this.done;
    return this.#ended;
  }

  /** Events of the stream. */
  take(events: DecisionEvent[]): void {
    for (const event of events) {
      const { decisionId, phase, target } = event;
      if (!target) continue;
      app.seen(event.eventTime);
      this.#count(event, target);
      if (isOpen(phase)) this.#open.set(decisionId, { ref: target, kind: target.kind, phase, attempt: event.attempt });
      else this.#open.delete(decisionId);
    }
    this.#show();
  }

  /** Kept events, the newest first. They open no decision: a newer event of the stream may have ended it. */
  async recall(kept: AsyncIterable<DecisionEvent[]>): Promise<void> {
    let read = 0;
    try {
      for await (const events of kept) {
        // What is older than all that the page remembers is not counted.
        if (read >= ENDED_MAX || (this.#ended.forgotten > 0 && !this.#recalled)) return;
        read += events.length;
        for (const event of events) if (event.target) this.#count(event, event.target);
        this.#show();
      }
      this.#recalled = true;
    } finally {
      if (read > 0) this.partial = !this.#recalled;
    }
  }

  /** Counts an object that the tree has lost: the log does not have the deletions of others. */
  went(uid: string, kind: string): void {
    if (uid === this.root || this.#ended.has(uid)) return;
    this.#ended.add({ id: uid, kind, at: app.clock, cause: Cause.UNSPECIFIED, took: undefined });
    this.#show();
  }

  #count(event: DecisionEvent, { kind, uid }: ObjectRef): void {
    const { cause } = event;
    const at = instant(event.eventTime) ?? app.clock;
    if (event.report?.outcome === Outcome.THROTTLED) {
      const id = `${event.decisionId} ${event.attempt}`;
      this.#throttled.set(id, { id, at });
    }
    if (event.phase !== Phase.CONFIRMED || event.kind !== ItemKind.DELETE || uid === this.root) return;
    const began = instant(event.rootDeletionTime);
    this.#ended.add({ id: uid, kind, at, cause, took: began === undefined ? undefined : Math.max(0, at - began) });
  }

  #show(): void {
    this.#timer ??= setTimeout(() => {
      this.#timer = undefined;
      if (this.#whole) {
        this.complete = true;
        this.open = new Map(this.#open);
      }
      this.done = this.#ended.sorted();
      this.throttled = newest(this.#throttled).map(({ at }) => at);
    }, TOGETHER_MS);
  }
}
