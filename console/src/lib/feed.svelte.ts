// A stream with what the reader has to know of it: whether it lives, how old its last message is, and what is wrong.

import { untrack } from "svelte";
import { follow } from "./follow.ts";
import { type Problem, problem } from "./problem.ts";

/** A hidden tab leaves its connections to others after this time: a browser has six for each origin. */
const HIDDEN_MS = 20_000;

export class Feed<M> {
  state = $state<"connecting" | "live" | "waiting" | "failed" | "paused" | "hidden">("connecting");
  problem = $state.raw<Problem>();
  last = $state<number>();
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
    untrack(() => this.#begin());
    document.addEventListener("visibilitychange", this.#seen);
    return () => {
      document.removeEventListener("visibilitychange", this.#seen);
      clearTimeout(this.#timer);
      this.#abort?.abort();
    };
  }

  toggle(): void {
    if (this.state === "paused") return this.#begin();
    this.#abort?.abort();
    this.state = "paused";
  }

  restart(): void {
    if (this.state !== "paused") this.#begin();
  }

  #begin(): void {
    this.#abort?.abort();
    this.#abort = new AbortController();
    this.state = "connecting";
    this.problem = undefined;
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
          this.problem = told.is === "live" ? undefined : problem(told.why);
          this.retryAt = told.is === "waiting" ? told.until : undefined;
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
        if (this.state === "paused" || this.state === "failed") return;
        this.#abort?.abort();
        this.state = "hidden";
      }, HIDDEN_MS);
    else if (this.state === "hidden") this.#begin();
  };
}
