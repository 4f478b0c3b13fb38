// A stream with what the reader has to know of it: whether it lives, how old its last message is, and what is wrong.

import { untrack } from "svelte";
import { follow } from "./follow.ts";
import { type Problem, problem } from "./problem.ts";
import { updates } from "./updates.svelte.ts";

/** A hidden tab leaves its connections to others after this time: a browser has six for each origin. */
const HIDDEN_MS = 20_000;

export class Feed<M> {
  state = $state<"connecting" | "live" | "between" | "waiting" | "failed" | "paused" | "hidden">("connecting");
  problem = $state.raw<Problem>();
  last = $state<number>();
  /** When the next call begins, while there is none. */
  retryAt = $state<number>();
  #abort: AbortController | undefined;
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(
    private readonly open: (signal: AbortSignal) => AsyncIterable<M>,
    private readonly take: (message: M) => number | void,
  ) {}

  /** Follows until the returned function is called: an effect of Svelte. */
  start(): () => void {
    // What the call reads must not start it again: an effect that starts a feed names its own reasons.
    untrack(() => {
      if (updates.paused) this.pause();
      else this.#begin();
      // A tab that opens in the background is hidden before it begins.
      this.#seen();
    });
    const leave = updates.join(this);
    document.addEventListener("visibilitychange", this.#seen);
    return () => {
      leave();
      document.removeEventListener("visibilitychange", this.#seen);
      clearTimeout(this.#timer);
      this.#abort?.abort();
    };
  }

  pause(): void {
    this.#end("paused");
  }

  resume(): void {
    if (this.state === "paused") this.#begin();
  }

  restart(): void {
    if (this.state !== "paused") this.#begin();
  }

  /** Calls again after a refusal. The refusal stays in sight until there is another answer. */
  revive(): void {
    if (this.state !== "failed" || !this.problem?.denied) return;
    if (document.hidden) this.#end("hidden");
    else this.#follow();
  }

  /** A stream that the page itself ends has no problem. */
  #end(state: "paused" | "hidden"): void {
    this.#abort?.abort();
    this.state = state;
    this.problem = undefined;
  }

  #begin(): void {
    this.state = "connecting";
    this.problem = undefined;
    this.#follow();
  }

  #follow(): void {
    this.#abort?.abort();
    this.#abort = new AbortController();
    const { signal } = this.#abort;
    void follow<M>(
      {
        open: this.open,
        take: (message) => {
          this.last = Date.now();
          return this.take(message);
        },
        tell: (told) => {
          this.state = told.is;
          this.problem = "why" in told ? problem(told.why) : undefined;
          this.retryAt = "until" in told ? told.until : undefined;
        },
        retries: (error) => problem(error).retry,
      },
      signal,
    );
  }

  #seen = (): void => {
    clearTimeout(this.#timer);
    if (document.hidden)
      this.#timer = setTimeout(() => {
        if (this.state !== "paused" && this.state !== "failed") this.#end("hidden");
      }, HIDDEN_MS);
    else if (this.state === "hidden") this.#begin();
  };
}
