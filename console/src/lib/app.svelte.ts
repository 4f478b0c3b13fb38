// What every page needs: the session, the state of the collector, the time, and the keys.

import type { GetStatusResponse } from "../generated/ownergraph/admin/v1beta1/admin_service_pb.ts";
import type { ResponseMeta } from "../generated/ownergraph/type/v1beta1/type_pb.ts";
import type { Timestamp } from "@bufbuild/protobuf/wkt";
import { Code, ConnectError } from "@connectrpc/connect";
import { Asked } from "./asked.svelte.ts";
import { onToken, session, type Session } from "./backend.ts";
import { admin, decisions } from "./clients.ts";
import { collectionName } from "./coverage.ts";
import { Feed } from "./feed.svelte.ts";
import { instant, millis } from "./time.ts";
import { updates } from "./updates.svelte.ts";

/** A difference of clocks below this is the way of the message. */
const SKEW_MS = 5000;

/** The session changes with the service behind the back end, and has the cluster's clock. */
const SESSION_MS = 30_000;
const SAMPLES_MAX = 900;

/** One state of the queue, for plots. */
export interface Sample {
  at: number;
  queued: number;
  held: number;
  backingOff: number;
  /** In seconds. */
  oldest: number;
}

class App {
  #asked = new Asked<Session>(async () => {
    const answer = await session();
    this.#compare(answer);
    // The caller is known, perhaps again, and may have got a role since the last answer.
    updates.revive();
    decisions.getParity({}).then(
      () => (this.observes = true),
      (error) => {
        if (ConnectError.from(error).code === Code.FailedPrecondition) this.observes = false;
      },
    );
    return answer;
  }, SESSION_MS);
  /** Whether the service is in mode observe: only then it compares. */
  observes = $state(false);
  status = $state.raw<GetStatusResponse>();
  /** Ticks once a second, for ages. */
  now = $state(Date.now());
  /** By how much this computer's clock is behind the cluster's, as far as it shows. */
  skew = $state(0);
  /** What the last action did, for everyone and for screen readers. */
  notice = $state("");
  samples = $state.raw<Sample[]>([]);
  feed = new Feed(
    (signal) => admin.watchStatus({ minInterval: { seconds: 1n }, heartbeatInterval: { seconds: 5n } }, { signal }),
    ({ event }) => {
      if (event.case === "goingAway") return millis(event.value.reconnectAfter);
      if (event.case !== "status") return;
      const { queuedItems, heldItems, backingOffItems, oldestQueuedAge } = (this.status = event.value);
      const sample = {
        at: this.clock,
        queued: Number(queuedItems),
        held: Number(heldItems),
        backingOff: Number(backingOffItems),
        oldest: (millis(oldestQueuedAge) ?? 0) / 1000,
      };
      this.samples = [...this.samples.slice(1 - SAMPLES_MAX), sample];
    },
  );

  start(): () => void {
    const timer = setInterval(() => (this.now = Date.now()), 1000);
    const ends = [this.#asked.start(), this.feed.start(), onToken(() => void this.load())];
    return () => {
      clearInterval(timer);
      for (const end of ends) end();
    };
  }

  get session(): Session | undefined {
    return this.#asked.answer;
  }

  get problem() {
    return this.#asked.problem;
  }

  load(): Promise<void> {
    return this.#asked.ask();
  }

  /** The clock of the API server shows both a clock that is behind and one that is ahead, and that it is set again. */
  #compare({ time }: Session): void {
    if (!time) return;
    const skew = Date.parse(time) - Date.now();
    this.skew = Math.abs(skew) > SKEW_MS ? Math.round(skew) : 0;
  }

  /**
   * An instant of the cluster that lies in the future shows that the clock here is behind. The time of a deletion shows
   * nothing, because it includes the grace period.
   */
  seen(at: Timestamp | undefined): void {
    const ahead = (instant(at) ?? 0) - Date.now();
    if (ahead > Math.max(SKEW_MS, this.skew + SKEW_MS)) this.skew = Math.round(ahead);
  }

  /** The time of the cluster, for ages of its instants. */
  get clock(): number {
    return this.now + this.skew;
  }

  say(words: string): void {
    this.notice = words;
    setTimeout(() => {
      if (this.notice === words) this.notice = "";
    }, 6000);
  }
}

export const app = new App();

/** Keys of the page that is shown, by their character. */
export const keys = new Map<string, () => void>();

export function bind(key: string, run: () => void): () => void {
  keys.set(key, run);
  return () => keys.get(key) === run && keys.delete(key);
}

/** What an answer does not cover, in words. */
export function gaps(meta: ResponseMeta | undefined, redacted = 0): string[] {
  const words = [];
  if (meta && meta.unsyncedCount > 0) {
    const named = meta.unsynced.slice(0, 3).map(collectionName);
    const more = meta.unsyncedCount - named.length;
    words.push(
      `${meta.unsyncedCount === 1 ? "1 kind is" : `${meta.unsyncedCount} kinds are`} not synced: ${named.join(", ")}${more > 0 ? ` and ${more} more` : ""}`,
    );
  }
  if (redacted > 0)
    words.push(
      `${redacted === 1 ? "1 object is" : `${redacted} objects are`} hidden: you may not see ${redacted === 1 ? "its namespace" : "their namespaces"}`,
    );
  return words;
}
