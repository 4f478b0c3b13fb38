// What every page needs: the session, the state of the collector, the time, and the keys.

import type { GetStatusResponse } from "../generated/ownergraph/admin/v1beta1/admin_service_pb.ts";
import type { ResponseMeta } from "../generated/ownergraph/type/v1beta1/type_pb.ts";
import type { Timestamp } from "@bufbuild/protobuf/wkt";
import { session, type Session } from "./backend.ts";
import { admin, decisions } from "./clients.ts";
import { Feed } from "./feed.svelte.ts";
import { type Problem, problem } from "./problem.ts";
import { instant, millis } from "./time.ts";

/** A difference of clocks below this is the way of the message. */
const SKEW_MS = 5000;

class App {
  session = $state.raw<Session>();
  problem = $state.raw<Problem>();
  /** Whether the service is in mode observe: only then it compares. */
  observes = $state(false);
  status = $state.raw<GetStatusResponse>();
  /** Ticks once a second, for ages. */
  now = $state(Date.now());
  /** By how much this computer's clock is behind the cluster's, as far as it shows. */
  skew = $state(0);
  /** What the last action did, for everyone and for screen readers. */
  notice = $state("");
  samples: { at: number; status: GetStatusResponse }[] = $state.raw([]);
  feed = new Feed(
    (signal) => admin.watchStatus({ minInterval: { seconds: 1n }, heartbeatInterval: { seconds: 5n } }, { signal }),
    ({ event }) => {
      if (event.case === "goingAway") return millis(event.value.reconnectAfter);
      if (event.case !== "status") return;
      this.status = event.value;
      this.samples = [...this.samples.slice(-899), { at: Date.now(), status: event.value }];
    },
  );

  start(): () => void {
    const timer = setInterval(() => (this.now = Date.now()), 1000);
    void this.load();
    const stop = this.feed.start();
    return () => (clearInterval(timer), stop());
  }

  async load(): Promise<void> {
    try {
      this.session = await session();
      this.problem = undefined;
      decisions.getParity({}).then(
        () => (this.observes = true),
        () => {},
      );
      if (this.session.time) this.#differ(Date.parse(this.session.time) - Date.now());
    } catch (error) {
      this.problem = problem(error);
    }
  }

  /** An instant of the cluster that lies in the future shows that the clock here is behind. */
  seen(at: Timestamp | undefined): void {
    const ahead = (instant(at) ?? 0) - Date.now();
    if (ahead > SKEW_MS) this.#differ(ahead);
  }

  #differ(skew: number): void {
    if (Math.abs(skew) > Math.max(SKEW_MS, Math.abs(this.skew))) this.skew = Math.round(skew);
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
    const named = meta.unsynced.slice(0, 3).map(({ group, resource }) => (group ? `${resource}.${group}` : resource));
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
