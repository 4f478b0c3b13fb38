// Follows a stream to which the page connects again: after its regular end, after silence, and with backoff after a
// failure.

import { Code, ConnectError } from "@connectrpc/connect";

export type Told =
  | { is: "live" }
  /** The stream has ended regularly, and the next call begins at `until`. */
  | { is: "between"; until: number }
  | { is: "waiting"; until: number; why: unknown }
  | { is: "failed"; why: unknown };

export interface Following<M> {
  open(signal: AbortSignal): AsyncIterable<M>;
  /** Takes a message. A number is the time until the next call, in milliseconds, that the stream announces. */
  take(message: M): number | void;
  tell(told: Told): void;
  /** Whether another call can help. */
  retries(error: unknown): boolean;
}

export const BACKOFF = { first: 500, most: 15_000 };
/** Each stream of the service has a message every ten seconds or more often. A connection can be lost without an end. */
export const SILENCE_MS = 35_000;

export async function follow<M>(following: Following<M>, signal: AbortSignal, sleep = pause): Promise<void> {
  let backoff = BACKOFF.first;
  while (!signal.aborted) {
    const silence = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const listen = () => {
      clearTimeout(timer);
      timer = setTimeout(() => silence.abort(), SILENCE_MS);
    };
    let wait = BACKOFF.first;
    let came = false;
    try {
      listen();
      for await (const message of following.open(AbortSignal.any([signal, silence.signal]))) {
        if (signal.aborted) return;
        listen();
        came = true;
        following.tell({ is: "live" });
        backoff = BACKOFF.first;
        wait = following.take(message) ?? wait;
      }
      if (silence.signal.aborted) throw quiet();
      if (!came) throw new ConnectError("the stream ends without a message", Code.Unavailable);
      if (signal.aborted) return;
      following.tell({ is: "between", until: Date.now() + wait });
    } catch (error) {
      if (signal.aborted) return;
      const why = silence.signal.aborted ? quiet() : error;
      if (!following.retries(why)) return following.tell({ is: "failed", why });
      // Half of it is random, so that pages that lost the same replica do not come back together.
      wait = backoff / 2 + (Math.random() * backoff) / 2;
      backoff = Math.min(backoff * 2, BACKOFF.most);
      following.tell({ is: "waiting", until: Date.now() + wait, why });
    } finally {
      clearTimeout(timer);
    }
    await sleep(wait, signal);
  }
}

const quiet = () => new ConnectError(`no message for ${SILENCE_MS / 1000} s`, Code.DeadlineExceeded);

export function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const done = () => {
      clearTimeout(timer);
      signal.removeEventListener("abort", done);
      resolve();
    };
    const timer = setTimeout(done, ms);
    signal.addEventListener("abort", done);
  });
}
