import { create } from "@bufbuild/protobuf";
import { type Timestamp, timestampFromMs } from "@bufbuild/protobuf/wkt";
import { Code, ConnectError } from "@connectrpc/connect";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import {
  type DecisionEvent,
  DecisionEventSchema,
  Phase,
  type WatchDecisionsResponse,
  WatchDecisionsResponseSchema,
} from "../src/generated/ownergraph/decision/v1beta1/decision_service_pb.ts";
import {
  NodeState,
  type WatchDependentsResponse_Batch,
  WatchDependentsResponse_ChangeType as ChangeType,
  WatchDependentsResponseSchema,
} from "../src/generated/ownergraph/graph/v1beta1/graph_service_pb.ts";
import { ObjectRefSchema } from "../src/generated/ownergraph/type/v1beta1/type_pb.ts";
import { ItemKind, Outcome } from "../src/generated/ownergraph/work/v1beta1/work_service_pb.ts";
import { app } from "../src/lib/app.svelte.ts";
import { ENDED_MAX, Ended } from "../src/lib/ended.ts";
import { Feed } from "../src/lib/feed.svelte.ts";
import { Queue } from "../src/lib/queue.svelte.ts";
import { Subtree } from "../src/lib/subtree.svelte.ts";
import { updates } from "../src/lib/updates.svelte.ts";

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

const batch = (type: ChangeType, ...names: string[]) =>
  create(WatchDependentsResponseSchema, {
    event: {
      case: "batch",
      value: {
        changes: names.map((name) => ({
          type,
          depth: 1,
          node: { ref: { name, uid: name }, state: type === ChangeType.REMOVED ? NodeState.GONE : NodeState.LIVE },
        })),
      },
    },
  });
const whole = create(WatchDependentsResponseSchema, { event: { case: "bookmark", value: { snapshotComplete: true } } });
const reset = create(WatchDependentsResponseSchema, { event: { case: "reset", value: {} } });
const shown = (subtree: Subtree) => {
  vi.runAllTimers();
  return subtree.items.map(({ uid }) => uid);
};

test("a tree grows while it is read for the first time", () => {
  const subtree = new Subtree(() => create(ObjectRefSchema), 1);
  subtree.take(batch(ChangeType.PRESENT, "a"));
  expect(shown(subtree)).toEqual(["a"]);
});
test("a tree is whole when it shows all objects, and not before", () => {
  const subtree = new Subtree(() => create(ObjectRefSchema), 1);
  for (const message of [batch(ChangeType.PRESENT, "a"), whole]) subtree.take(message);
  expect([subtree.items.length, subtree.complete]).toEqual([0, false]);
  expect(shown(subtree)).toEqual(["a"]);
  expect(subtree.complete).toBe(true);
});
test("after a reset the tree stays until the next one is whole", () => {
  const subtree = new Subtree(() => create(ObjectRefSchema), 1);
  for (const message of [batch(ChangeType.PRESENT, "a", "b"), whole]) subtree.take(message);
  expect(shown(subtree)).toEqual(["a", "b"]);
  for (const message of [reset, batch(ChangeType.PRESENT, "b")]) subtree.take(message);
  expect(shown(subtree)).toEqual(["a", "b"]);
  subtree.take(whole);
  expect(shown(subtree)).toEqual(["b"]);
});
test("the time of a deletion, which may be in the future, says nothing about the clock", () => {
  const subtree = new Subtree(() => create(ObjectRefSchema), 1);
  const message = batch(ChangeType.PRESENT, "a");
  const { changes } = message.event.value as WatchDependentsResponse_Batch;
  changes[0]!.node!.deleteTime = timestampFromMs(Date.now() + 3_600_000);
  subtree.take(message);
  expect(app.skew).toBe(0);
});

interface More {
  phase?: Phase;
  attempt?: number;
  report?: { outcome: Outcome };
  rootDeletionTime?: Timestamp;
}
const confirmed = (uid: string, at: number, more: More = {}) =>
  create(DecisionEventSchema, {
    decisionId: `d-${uid}`,
    phase: Phase.CONFIRMED,
    kind: ItemKind.DELETE,
    target: { kind: "Pod", uid },
    eventTime: timestampFromMs(at),
    ...more,
  });
async function* kept(...pages: DecisionEvent[][]) {
  yield* pages;
}
test("an object that the tree, the stream and the log lose counts once, and the root does not count", async () => {
  const queue = new Queue([], undefined, "root");
  const subtree = new Subtree(
    () => create(ObjectRefSchema),
    1,
    (uid, kind) => queue.went(uid, kind),
  );
  for (const message of [batch(ChangeType.PRESENT, "a", "b"), whole]) subtree.take(message);
  for (let at = 0; at < 2; at += 1) subtree.take(batch(ChangeType.REMOVED, "a", "root"));
  const events = [confirmed("a", 1000, { rootDeletionTime: timestampFromMs(400) }), confirmed("c", 900)];
  queue.take(events);
  await queue.recall(kept([...events, confirmed("root", 950)]));
  expect(shown(subtree)).toEqual(["b"]);
  expect(queue.done.map(({ id, at, took }) => [id, at, took])).toEqual([
    ["c", 900, undefined],
    ["a", 1000, 600],
  ]);
  expect([queue.ended.total, queue.partial]).toEqual([2, false]);
});
test("what the log keeps opens no decision that a newer event has ended", async () => {
  const queue = new Queue([]);
  const stream = queue.feed as unknown as { take(message: WatchDecisionsResponse): void };
  const report = { outcome: Outcome.THROTTLED };
  queue.take([confirmed("a", 1000)]);
  await queue.recall(kept([confirmed("a", 900, { phase: Phase.FAILED, attempt: 1, report })]));
  queue.take([confirmed("b", 1000, { phase: Phase.FAILED, attempt: 1, report })]);
  stream.take(create(WatchDecisionsResponseSchema, { event: { case: "bookmark", value: { snapshotComplete: true } } }));
  vi.runAllTimers();
  expect(queue.throttled).toEqual([900, 1000]);
  expect([...queue.open.keys()]).toEqual(["d-b"]);
});
test("a log with more events than the page reads gives at least its numbers", async () => {
  const queue = new Queue([]);
  const page = Array.from({ length: ENDED_MAX / 10 }, (_, at) => confirmed(`${at % 10}`, 1000));
  const pages = Array.from({ length: 10 }, () => page);
  await queue.recall(kept(...pages));
  expect([queue.ended.total, queue.partial]).toEqual([10, false]);
  const long = new Queue([]);
  await long.recall(kept(...pages, page));
  expect([long.ended.total, long.partial]).toEqual([10, true]);
  async function* refused(): AsyncGenerator<DecisionEvent[]> {
    throw new Error("away");
  }
  await expect(long.recall(refused())).rejects.toThrow("away");
  expect(long.partial).toBe(true);
});
test("a log that breaks off gives at least its numbers, until it is read to its end", async () => {
  const queue = new Queue([]);
  async function* broken() {
    yield [confirmed("a", 1000)];
    throw new Error("away");
  }
  await expect(queue.recall(broken())).rejects.toThrow("away");
  expect(queue.partial).toBe(true);
  await queue.recall(kept([confirmed("a", 1000)]));
  expect(queue.partial).toBe(false);
});
test("numbers count what the page does not remember any more, once", () => {
  const ended = new Ended(8);
  const add = (at: number) => ended.add({ id: `${at}`, at, kind: at % 2 ? "Pod" : "Job", cause: 1, took: undefined });
  const totals = [];
  for (let at = 1; at <= 20; at += 1) {
    add(at);
    expect(ended.sorted().length).toBeLessThanOrEqual(8);
    totals.push(ended.total);
  }
  expect(totals).toEqual(Array.from({ length: 20 }, (_, at) => at + 1));
  // The log is read again, the newest first.
  for (let at = 20; at >= 1; at -= 1) add(at);
  expect([ended.total, ended.kinds.get("Pod"), ended.kinds.get("Job"), ended.causes.get(1)]).toEqual([20, 10, 10, 20]);
  expect(ended.forgotten + ended.sorted().length).toBe(20);
  expect(ended.sorted().at(-1)!.at).toBe(20);
});
test("a feed that begins in a hidden tab leaves its connection to others", async () => {
  vi.stubGlobal("document", { hidden: true, addEventListener: () => {}, removeEventListener: () => {} });
  const signals: AbortSignal[] = [];
  async function* endless(signal: AbortSignal) {
    signals.push(signal);
    yield "a";
    await new Promise((resolve) => signal.addEventListener("abort", resolve));
  }
  const feed = new Feed(endless, () => {});
  const end = feed.start();
  await vi.advanceTimersByTimeAsync(20_000);
  expect([feed.state, signals.map(({ aborted }) => aborted)]).toEqual(["hidden", [true]]);
  end();
  vi.unstubAllGlobals();
});
/** A page that is shown or hidden, and a stream that is refused with this code until it is allowed. */
function refused(code: Code) {
  const page = { hidden: false, addEventListener: () => {}, removeEventListener: () => {} };
  vi.stubGlobal("document", page);
  const state = { page, allowed: false, calls: 0 };
  const feed = new Feed(
    async function* (signal: AbortSignal) {
      state.calls += 1;
      if (!state.allowed) throw new ConnectError("refused", code);
      yield "a";
      await new Promise((resolve) => signal.addEventListener("abort", resolve));
    },
    () => {},
  );
  const end = feed.start();
  return { feed, state, end: () => (end(), vi.unstubAllGlobals()) };
}
test("a stream that was refused for want of a sign-in goes on when there is one, and says so until then", async () => {
  const { feed, state, end } = refused(Code.Unauthenticated);
  await vi.advanceTimersByTimeAsync(0);
  expect([feed.state, feed.problem?.denied]).toEqual(["failed", true]);
  updates.revive();
  expect([feed.state, feed.problem?.denied]).toEqual(["failed", true]);
  await vi.advanceTimersByTimeAsync(0);
  expect([feed.state, state.calls]).toEqual(["failed", 2]);
  state.allowed = true;
  updates.revive();
  await vi.advanceTimersByTimeAsync(0);
  expect([feed.state, feed.problem, state.calls]).toEqual(["live", undefined, 3]);
  updates.revive();
  expect(state.calls).toBe(3);
  end();
});
test("a hidden tab waits with that until it is shown, and a paused page until it goes on", async () => {
  const { feed, state, end } = refused(Code.Unauthenticated);
  await vi.advanceTimersByTimeAsync(0);
  updates.toggle();
  updates.revive();
  expect([feed.state, state.calls]).toEqual(["paused", 1]);
  updates.toggle();
  await vi.advanceTimersByTimeAsync(0);
  state.page.hidden = true;
  updates.revive();
  expect([feed.state, state.calls]).toEqual(["hidden", 2]);
  end();
});
test("what a sign-in cannot mend is not asked again", async () => {
  const { state, end } = refused(Code.InvalidArgument);
  await vi.advanceTimersByTimeAsync(0);
  updates.revive();
  await vi.advanceTimersByTimeAsync(0);
  expect(state.calls).toBe(1);
  end();
});
