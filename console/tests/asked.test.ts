import { expect, test, vi } from "vitest";
import { Asked, paged, RETRY_MS } from "../src/lib/asked.svelte.ts";
import { BackendError } from "../src/lib/backend.ts";
import { updates } from "../src/lib/updates.svelte.ts";

test("an answer to an older question is dropped", async () => {
  const answers: ((value: string) => void)[] = [];
  const asked = new Asked<string>(() => new Promise((resolve) => answers.push(resolve)));
  const end = asked.start();
  const [first, second] = [asked.ask(), asked.ask()];
  answers[2]!("new");
  await second;
  for (const older of answers.slice(0, 2)) older("old");
  await first;
  expect(asked.answer).toBe("new");
  end();
});
test("nothing is asked before the start and after the end", async () => {
  vi.useFakeTimers();
  const question = vi.fn(async () => "answer");
  const asked = new Asked<string>(question, RETRY_MS);
  await asked.ask();
  expect(question).not.toHaveBeenCalled();
  asked.start()();
  await asked.ask();
  expect(question).toHaveBeenCalledOnce();
  expect(vi.getTimerCount()).toBe(0);
  vi.useRealTimers();
});
test("a failure keeps the answer, and the question is asked again", async () => {
  vi.useFakeTimers();
  vi.stubGlobal("document", { hidden: false });
  let fails = false;
  const asked = new Asked<string>(async () => {
    if (fails) throw new Error("away");
    return "answer";
  });
  const end = asked.start();
  await vi.advanceTimersByTimeAsync(0);
  fails = true;
  await asked.ask();
  expect([asked.answer, asked.problem?.retry]).toEqual(["answer", true]);
  fails = false;
  await vi.advanceTimersByTimeAsync(RETRY_MS);
  expect(asked.problem).toBeUndefined();
  end();
  expect(vi.getTimerCount()).toBe(0);
  vi.unstubAllGlobals();
  vi.useRealTimers();
});
test("a question that was refused for want of a sign-in is asked again when there is one", async () => {
  vi.useFakeTimers();
  let refused = true;
  const question = vi.fn(async () => {
    if (refused) throw new BackendError("unknown", 401);
    return "answer";
  });
  const asked = new Asked<string>(question);
  const end = asked.start();
  await vi.advanceTimersByTimeAsync(0);
  expect(asked.problem?.denied).toBe(true);
  refused = false;
  updates.revive();
  await vi.advanceTimersByTimeAsync(0);
  expect([asked.answer, asked.problem]).toEqual(["answer", undefined]);
  end();
  updates.revive();
  expect(question).toHaveBeenCalledTimes(2);
  vi.useRealTimers();
});
test("pages are read up to a number", async () => {
  const read = async (pageToken: string) => ({ nextPageToken: `${Number(pageToken) + 1}`, items: [pageToken] });
  const { all, more } = await paged(3, read, ({ items }) => items);
  expect(all).toEqual(["", "1", "2"]);
  expect(more).toBe(true);
});
