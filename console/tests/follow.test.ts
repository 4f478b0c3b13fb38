import { expect, test } from "vitest";
import { BACKOFF, follow, type Told } from "../src/lib/follow.ts";

/** Streams that the test gives in order; then the following ends. */
function run(streams: (() => AsyncIterable<string>)[], retries = true) {
  const abort = new AbortController();
  const taken: string[] = [];
  const told: Told[] = [];
  const waits: number[] = [];
  const done = follow<string>(
    {
      open: () => (streams.shift() ?? (() => (abort.abort(), messages())))(),
      take: (message) => {
        taken.push(message);
        if (message === "going away") return 7000;
      },
      tell: (one) => void told.push(one),
      retries: () => retries,
    },
    abort.signal,
    async (ms) => void waits.push(ms),
  );
  return done.then(() => ({ taken, told, waits }));
}
async function* messages(...all: string[]): AsyncIterable<string> {
  yield* all;
}
async function* failing(): AsyncIterable<string> {
  throw new Error("away");
}

test("a stream that announces its end is called again at that time", async () => {
  const { waits, taken } = await run([() => messages("a", "going away")]);
  expect(taken).toEqual(["a", "going away"]);
  expect(waits[0]).toBe(7000);
});
test("failures are spaced out, and a message makes the next try quick again", async () => {
  const { waits } = await run([failing, failing, failing, () => messages("a"), failing]);
  expect(waits[0]).toBeLessThanOrEqual(BACKOFF.first);
  expect(waits[2]).toBeGreaterThanOrEqual(BACKOFF.first);
  expect(waits[4]).toBeLessThanOrEqual(BACKOFF.first);
});
test("a failure that no other call can mend ends the following", async () => {
  const { told, waits } = await run([failing, () => messages("never")], false);
  expect(told.map(({ is }) => is)).toEqual(["failed"]);
  expect(waits).toEqual([]);
});
