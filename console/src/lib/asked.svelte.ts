// An answer that the page asks for again: only the newest question counts, and what is shown stays when one fails.

import { untrack } from "svelte";
import { type Problem, problem } from "./problem.ts";
import { updates } from "./updates.svelte.ts";

/** After a failure that can pass, the page asks again after this time. */
export const RETRY_MS = 5000;

export class Asked<A> {
  answer = $state.raw<A>();
  /** When the answer came, by the clock of this computer. */
  at = $state<number>();
  problem = $state.raw<Problem>();
  #abort: AbortController | undefined;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #every: number | undefined;
  #running = false;

  /** With `every`, the question is repeated after that many milliseconds. */
  constructor(
    private readonly question: (signal: AbortSignal) => Promise<A>,
    every?: number,
  ) {
    this.#every = every;
  }

  /** Asks until the returned function is called: an effect of Svelte. */
  start(): () => void {
    // What the question reads must not start it again: an effect that starts it names its own reasons.
    this.#running = true;
    untrack(() => void this.ask());
    // A repeated question needs no update to start again.
    const leave = this.#every === undefined ? updates.join(this) : () => {};
    return () => {
      leave();
      this.#running = false;
      clearTimeout(this.#timer);
      this.#abort?.abort();
    };
  }

  /** Asks now. Before the start and after the end it does nothing: nothing would end the repetition. */
  async ask(): Promise<void> {
    if (!this.#running) return;
    clearTimeout(this.#timer);
    this.#abort?.abort();
    const { signal } = (this.#abort = new AbortController());
    let again = this.#every;
    try {
      const answer = await this.question(signal);
      if (signal.aborted) return;
      this.answer = answer;
      this.at = Date.now();
      this.problem = undefined;
    } catch (error) {
      if (signal.aborted) return;
      this.problem = problem(error);
      if (this.problem.retry) again = RETRY_MS;
    }
    if (again !== undefined) this.#wait(again);
  }

  revive(): void {
    if (this.problem?.denied) void this.ask();
  }

  #wait(ms: number): void {
    this.#timer = setTimeout(() => {
      if (document.hidden || updates.paused) this.#wait(ms);
      else void this.ask();
    }, ms);
  }
}

/** Reads the first `pages` of a list. They come anew each time, because a token of a page is valid for minutes only. */
export async function paged<A extends { nextPageToken: string }, T>(
  pages: number,
  read: (pageToken: string) => Promise<A>,
  of: (answer: A) => T[],
): Promise<{ first: A; all: T[]; more: boolean }> {
  const first = await read("");
  const all = [...of(first)];
  let { nextPageToken } = first;
  for (let page = 1; nextPageToken && page < pages; page += 1) {
    const next = await read(nextPageToken);
    all.push(...of(next));
    ({ nextPageToken } = next);
  }
  return { first, all, more: nextPageToken !== "" };
}
