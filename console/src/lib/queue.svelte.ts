// The open decisions, and what ended since the page opened, from one stream of the decision log.

import {
  type DecisionEvent,
  EventView,
  Phase,
  type Position,
  type WatchDecisionsResponse,
} from "../generated/ownergraph/decision/v1beta1/decision_service_pb.ts";
import { ItemKind } from "../generated/ownergraph/work/v1beta1/work_service_pb.ts";
import { app } from "./app.svelte.ts";
import { decisions } from "./clients.ts";
import type { Filter } from "./decisions.ts";
import { Feed } from "./feed.svelte.ts";
import { instant, millis } from "./time.ts";
import { isOpen } from "./words.ts";

export interface Open {
  phase: Phase;
  kind: string;
  since: number;
}
export interface Done {
  at: number;
  cause: DecisionEvent["cause"];
  kind: string;
  uid: string;
  /** From the deletion of the root, in milliseconds; undefined if that is unknown. */
  took: number | undefined;
}

const DONE_MAX = 20_000;

export class Queue {
  /** Copied at most once in this time: a burst of decisions is one change of the page. */
  static readonly TOGETHER_MS = 500;
  open = $state.raw<Map<string, Open>>(new Map());
  done = $state.raw<Done[]>([]);
  feed: Feed<WatchDecisionsResponse>;
  #open = new Map<string, Open>();
  #done: Done[] = [];
  #timer: ReturnType<typeof setTimeout> | undefined;
  #last: Position | undefined;

  constructor(include: Filter[]) {
    this.feed = new Feed(
      (signal) => {
        // The open decisions come whole with each call.
        this.#open.clear();
        return decisions.watchDecisions(
          { start: { case: "openThenFollow", value: true }, include, acceptGaps: true, view: EventView.BASIC },
          { signal },
        );
      },
      ({ event, position }) => {
        if (event.case === "batch") for (const one of event.value.events) this.take(one);
        else if (event.case === "gap") this.#open.clear();
        else if (event.case === "goingAway") return millis(event.value.reconnectAfter);
        this.#last = position ?? this.#last;
        this.#show();
      },
    );
  }

  /** Past events, in any order. */
  remember(events: DecisionEvent[]): void {
    for (const event of events) this.#end(event);
    this.#done.sort((a, b) => a.at - b.at);
    this.#show();
  }

  take(event: DecisionEvent): void {
    if (!event.target) return;
    app.seen(event.eventTime);
    const at = instant(event.eventTime) ?? Date.now();
    if (isOpen(event.phase)) {
      const since = this.#open.get(event.decisionId)?.since ?? at;
      this.#open.set(event.decisionId, { phase: event.phase, kind: event.target.kind, since });
    } else this.#open.delete(event.decisionId);
    if (event.position) this.#end(event);
  }

  #end(event: DecisionEvent): void {
    if (event.phase !== Phase.CONFIRMED || event.kind !== ItemKind.DELETE || !event.target) return;
    const at = instant(event.eventTime) ?? Date.now();
    const began = instant(event.rootDeletionTime);
    this.#done.push({
      at,
      cause: event.cause,
      kind: event.target.kind,
      uid: event.target.uid,
      took: began === undefined ? undefined : Math.max(0, at - began),
    });
    if (this.#done.length > DONE_MAX) this.#done.splice(0, DONE_MAX / 4);
  }

  #show(): void {
    this.#timer ??= setTimeout(() => {
      this.#timer = undefined;
      this.open = new Map(this.#open);
      this.done = [...this.#done];
    }, Queue.TOGETHER_MS);
  }
}
