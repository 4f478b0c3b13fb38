import { expect, test, vi } from "vitest";
import { Asked, paged, RETRY_MS } from "../src/lib/asked.svelte.ts";

test("an answer to an older question is dropped", async () => {
  const answers: ((value: string) => void)[] = [];
  const asked = new Asked<string>(() => new Promise((resolve) => answers.push(resolve)));
  const [first, second] = [asked.ask(), asked.ask()];
  answers[1]!("new");
  await second;
  answers[0]!("old");
  await first;
  expect(asked.answer).toBe("new");
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
test("pages are read up to a number", async () => {
  const read = async (pageToken: string) => ({ nextPageToken: `${Number(pageToken) + 1}`, items: [pageToken] });
  const { all, more } = await paged(3, read, ({ items }) => items);
  expect(all).toEqual(["", "1", "2"]);
  expect(more).toBe(true);
});
