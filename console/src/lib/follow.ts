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
/** How long the page takes messages before it may draw. A connection that was behind has many at once. */
export const SLICE_MS = 8;

export async function follow<M>(following: Following<M>, signal: AbortSignal, sleep = pause): Promise<void> {
  let backoff = BACKOFF.first;
  while (!signal.aborted) {
    let wait = BACKOFF.first;
    let came = false;
    try {
      for await (const message of heard((signal) => following.open(signal), signal)) {
        if (signal.aborted) return;
        came = true;
        following.tell({ is: "live" });
        backoff = BACKOFF.first;
        wait = following.take(message) ?? wait;
      }
      if (!came) throw new ConnectError("the stream ends without a message", Code.Unavailable);
      if (signal.aborted) return;
      following.tell({ is: "between", until: Date.now() + wait });
    } catch (why) {
      if (signal.aborted) return;
      if (!following.retries(why)) return following.tell({ is: "failed", why });
      // Half of it is random, so that pages that lost the same replica do not come back together.
      wait = backoff / 2 + (Math.random() * backoff) / 2;
      backoff = Math.min(backoff * 2, BACKOFF.most);
      following.tell({ is: "waiting", until: Date.now() + wait, why });
    }
    await sleep(wait, signal);
  }
}

/** The messages of a stream, which fails when it is silent for too long. Between them the page may draw, by `rest`. */
export async function* heard<M>(
  open: (signal: AbortSignal) => AsyncIterable<M>,
  signal: AbortSignal,
  rest = nextTask,
): AsyncGenerator<M, void, undefined> {
  const silence = new AbortController();
  let timer: ReturnType<typeof setTimeout> | undefined;
  const listen = () => {
    clearTimeout(timer);
    timer = setTimeout(() => silence.abort(), SILENCE_MS);
  };
  try {
    listen();
    let began = performance.now();
    for await (const message of open(AbortSignal.any([signal, silence.signal]))) {
      listen();
      yield message;
      if (performance.now() - began < SLICE_MS) continue;
      await rest();
      began = performance.now();
    }
    if (silence.signal.aborted) throw quiet();
  } catch (error) {
    throw silence.signal.aborted ? quiet() : error;
  } finally {
    clearTimeout(timer);
    // A reader that has enough leaves the connection to others.
    silence.abort();
  }
}

/** Messages that have arrived already are taken in one task of the browser, unless there is another task between them. */
function nextTask(): Promise<unknown> {
  const { port1, port2 } = new MessageChannel();
  return new Promise((resolve) => {
    port1.onmessage = () => (port1.close(), resolve(undefined));
    port2.postMessage(undefined);
  });
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
