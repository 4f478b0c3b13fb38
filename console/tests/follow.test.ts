import { afterEach, expect, test, vi } from "vitest";
import { BACKOFF, follow, heard, pause, SILENCE_MS, SLICE_MS, type Told } from "../src/lib/follow.ts";

type Open = (signal: AbortSignal) => AsyncIterable<string>;

/** Streams that the test gives in order; then the following ends. */
function run(streams: Open[], retries = true) {
  const abort = new AbortController();
  const taken: string[] = [];
  const told: Told[] = [];
  const waits: number[] = [];
  const done = follow<string>(
    {
      open: (signal) => (streams.shift() ?? (() => (abort.abort(), messages())))(signal),
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
const stream =
  (...all: string[]): Open =>
  () =>
    messages(...all);
async function* messages(...all: string[]): AsyncIterable<string> {
  yield* all;
}
async function* failing(): AsyncIterable<string> {
  throw new Error("away");
}
/** One message, and then nothing, as on a connection that was lost without an end. */
async function* stuck(signal: AbortSignal): AsyncIterable<string> {
  yield "a";
  await new Promise((_, reject) => signal.addEventListener("abort", () => reject(new Error("aborted"))));
}
afterEach(() => vi.useRealTimers());

test("a stream that announces its end is called again at that time", async () => {
  const { waits, taken, told } = await run([stream("a", "going away")]);
  expect(taken).toEqual(["a", "going away"]);
  expect(waits[0]).toBe(7000);
  expect(told.at(-1)!.is).toBe("between");
});
test("failures are spaced out, and a message makes the next try quick again", async () => {
  const { waits } = await run([failing, failing, failing, stream("a"), failing]);
  expect(waits[0]).toBeLessThanOrEqual(BACKOFF.first);
  expect(waits[2]).toBeGreaterThanOrEqual(BACKOFF.first);
  expect(waits[4]).toBeLessThanOrEqual(BACKOFF.first);
});
test("streams that end without a message are spaced out like failures", async () => {
  const { waits, told } = await run([stream(), stream(), stream(), stream()]);
  expect(told.map(({ is }) => is)).toEqual(["waiting", "waiting", "waiting", "waiting"]);
  expect(waits[3]).toBeGreaterThanOrEqual(4 * BACKOFF.first);
});
test("a stream that is silent for too long is called again", async () => {
  vi.useFakeTimers();
  const done = run([stuck, stream("b")]);
  await vi.advanceTimersByTimeAsync(SILENCE_MS + 1);
  const { taken, told } = await done;
  expect(taken).toEqual(["a", "b"]);
  expect(told.map(({ is }) => is)).toEqual(["live", "waiting", "live", "between"]);
});
test("a stream that the page reads once fails when it is silent for too long, and leaves no timer", async () => {
  vi.useFakeTimers();
  const taken: string[] = [];
  const read = async () => {
    for await (const message of heard(stuck, new AbortController().signal)) taken.push(message);
  };
  const reading = expect(read()).rejects.toThrow(`no message for ${SILENCE_MS / 1000} s`);
  await vi.advanceTimersByTimeAsync(SILENCE_MS + 1);
  await reading;
  for await (const message of heard(stuck, new AbortController().signal)) {
    taken.push(message);
    break;
  }
  expect(taken).toEqual(["a", "a"]);
  expect(vi.getTimerCount()).toBe(0);
});
test("a failure that no other call can mend ends the following", async () => {
  const { told, waits } = await run([failing, stream("never")], false);
  expect(told.map(({ is }) => is)).toEqual(["failed"]);
  expect(waits).toEqual([]);
});
test("a pause ends with its signal, and leaves no listener", async () => {
  const abort = new AbortController();
  const remove = vi.spyOn(abort.signal, "removeEventListener");
  const waiting = pause(60_000, abort.signal);
  abort.abort();
  await waiting;
  expect(remove).toHaveBeenCalledOnce();
});
test("between messages that have arrived together, the page may draw", async () => {
  let now = 0;
  const clock = vi.spyOn(performance, "now").mockImplementation(() => now);
  const rest = vi.fn(async () => {});
  const rests = [];
  for await (const _ of heard(stream("a", "b", "c", "d", "e"), new AbortController().signal, rest)) {
    rests.push(rest.mock.calls.length);
    now += SLICE_MS / 2;
  }
  expect(rests).toEqual([0, 0, 1, 1, 2]);
  clock.mockRestore();
});
