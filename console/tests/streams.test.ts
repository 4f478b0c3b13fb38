import { create } from "@bufbuild/protobuf";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { DecisionEventSchema, Phase } from "../src/generated/ownergraph/decision/v1beta1/decision_service_pb.ts";
import {
  NodeState,
  WatchDependentsResponse_ChangeType as ChangeType,
  WatchDependentsResponseSchema,
} from "../src/generated/ownergraph/graph/v1beta1/graph_service_pb.ts";
import { ObjectRefSchema } from "../src/generated/ownergraph/type/v1beta1/type_pb.ts";
import { ItemKind } from "../src/generated/ownergraph/work/v1beta1/work_service_pb.ts";
import { Queue } from "../src/lib/queue.svelte.ts";
import { Subtree } from "../src/lib/subtree.svelte.ts";

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
test("an object that goes twice went once", () => {
  const subtree = new Subtree(() => create(ObjectRefSchema), 1);
  for (const message of [batch(ChangeType.PRESENT, "a"), whole]) subtree.take(message);
  for (let at = 0; at < 2; at += 1) subtree.take(batch(ChangeType.REMOVED, "a"));
  expect([...subtree.gone.keys()]).toEqual(["a"]);
  expect(shown(subtree)).toEqual([]);
});
test("a decision that the log and the stream both show counts once", () => {
  const queue = new Queue([], async () => []);
  const event = create(DecisionEventSchema, {
    decisionId: "d",
    phase: Phase.CONFIRMED,
    kind: ItemKind.DELETE,
    target: { kind: "Pod", uid: "u" },
    eventTime: timestampFromMs(1000),
    rootDeletionTime: timestampFromMs(400),
  });
  queue.take([event]);
  queue.take([event, create(DecisionEventSchema, { ...event, decisionId: "e", eventTime: timestampFromMs(900) })]);
  vi.runAllTimers();
  expect(queue.done.map(({ at, took }) => [at, took])).toEqual([
    [900, 500],
    [1000, 600],
  ]);
});
