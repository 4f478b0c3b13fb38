// Follows a stream to which the page connects again: after its regular end, and with backoff after a failure.

export type Told = { is: "live" } | { is: "waiting"; until: number; why: unknown } | { is: "failed"; why: unknown };

export interface Following<M> {
  open(signal: AbortSignal): AsyncIterable<M>;
  /** Takes a message. A number is the time until the next call, in milliseconds, that the stream announces. */
  take(message: M): number | void;
  tell(told: Told): void;
  /** Whether another call can help. */
  retries(error: unknown): boolean;
}

export const BACKOFF = { first: 500, most: 15_000 };

export async function follow<M>(following: Following<M>, signal: AbortSignal, sleep = pause): Promise<void> {
  let backoff = BACKOFF.first;
  while (!signal.aborted) {
    let wait: number | undefined;
    try {
      for await (const message of following.open(signal)) {
        if (signal.aborted) return;
        following.tell({ is: "live" });
        backoff = BACKOFF.first;
        const announced = following.take(message);
        if (typeof announced === "number") wait = announced;
      }
    } catch (error) {
      if (signal.aborted) return;
      if (!following.retries(error)) return following.tell({ is: "failed", why: error });
      // Half of it is random, so that pages that lost the same replica do not come back together.
      wait = backoff / 2 + (Math.random() * backoff) / 2;
      backoff = Math.min(backoff * 2, BACKOFF.most);
      following.tell({ is: "waiting", until: Date.now() + wait, why: error });
    }
    await sleep(wait ?? BACKOFF.first, signal);
  }
}

export function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener("abort", () => (clearTimeout(timer), resolve()), { once: true });
  });
}
