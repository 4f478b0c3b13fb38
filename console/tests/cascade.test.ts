import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { describe, expect, test } from "vitest";
import { PauseSchema } from "../src/generated/ownergraph/admin/v1beta1/admin_service_pb.ts";
import { Phase } from "../src/generated/ownergraph/decision/v1beta1/decision_service_pb.ts";
import {
  Collecting,
  ExplainObjectResponseSchema,
  NodeSchema,
  NodeState,
  Reason_Code as Code,
  Verdict,
} from "../src/generated/ownergraph/graph/v1beta1/graph_service_pb.ts";
import { ObjectRefSchema } from "../src/generated/ownergraph/type/v1beta1/type_pb.ts";
import { blocksItself, suspectsOf, waitsBelow } from "../src/lib/blockers.ts";
import { aboutCascade } from "../src/lib/decisions.ts";
import { isOfCascade, scopeOf } from "../src/lib/pauses.ts";
import { Item } from "../src/lib/tree.ts";

const refTo = (name: string) => create(ObjectRefSchema, { kind: "Pod", namespace: "shop", name, uid: name });
const item = (name: string, more: MessageInitShape<typeof NodeSchema>) =>
  new Item(name, create(NodeSchema, { ref: refTo(name), state: NodeState.TERMINATING, ...more }), 1, []);
const names = (items: Item[], open: [string, Phase, number][] = []) =>
  suspectsOf(
    "root",
    items,
    open.map(([name, phase, attempt]) => ({ ref: refTo(name), kind: "Pod", phase, attempt })),
  ).map(({ name }) => name);

describe("blockers of a cascade", () => {
  test("the ends of the chains", () => {
    const middle = item("middle", { finalizers: ["foregroundDeletion"], dependentCount: 1 });
    expect(names([middle, item("end", {}), item("live", { state: NodeState.LIVE })])).toEqual(["end"]);
  });
  test("an object that is held or has a finalizer of a controller, also one with dependents", () => {
    const held = item("held", { state: NodeState.LIVE, collecting: Collecting.HELD, dependentCount: 2 });
    const kept = item("kept", { finalizers: ["foregroundDeletion", "example.com/a"], dependentCount: 2 });
    expect(names([item("end", {}), held, kept])).toEqual(["held", "kept", "end"]);
    expect(names([item("live", { state: NodeState.LIVE, finalizers: ["example.com/a"] })])).toEqual([]);
  });
  test("the target of a decision that fails, is parked, is held, or waits for a retry", () => {
    const queued = item("failed", { state: NodeState.LIVE, collecting: Collecting.QUEUED });
    const open: [string, Phase, number][] = [
      ["failed", Phase.FAILED, 1],
      ["parked", Phase.PARKED, 1],
      ["held", Phase.HELD, 0],
      ["again", Phase.PROPOSED, 2],
      ["new", Phase.PROPOSED, 0],
      ["busy", Phase.LEASED, 3],
      ["root", Phase.FAILED, 1],
    ];
    expect(names([queued], open)).toEqual(["failed", "parked", "held", "again"]);
  });
  test("an object counts once", () => {
    const held = item("a", { state: NodeState.LIVE, collecting: Collecting.HELD });
    expect(names([held, item("b", {})], [["a", Phase.HELD, 0], ["b", Phase.FAILED, 1]])).toEqual(["a", "b"]); // prettier-ignore
  });
  test("the root, which is not in its tree", () => {
    const root = (verdict: Verdict, finalizers: string[], codes: Code[] = []) =>
      create(ExplainObjectResponseSchema, {
        node: { state: NodeState.TERMINATING, finalizers },
        verdict,
        reasons: codes.map((code) => ({ code })),
      });
    expect(blocksItself(root(Verdict.IN_PROGRESS, ["foregroundDeletion"]))).toBe(false);
    expect(blocksItself(root(Verdict.IN_PROGRESS, ["orphan", "example.com/a"]))).toBe(true);
    for (const verdict of [Verdict.BLOCKED, Verdict.HELD, Verdict.PARKED])
      expect(blocksItself(root(verdict, []))).toBe(true);
    expect(waitsBelow(root(Verdict.BLOCKED, [], [Code.BLOCKING_DEPENDENTS]))).toBe(true);
    expect(waitsBelow(root(Verdict.BLOCKED, [], [Code.BLOCKING_DEPENDENTS, Code.FINALIZER_PRESENT]))).toBe(false);
  });
});

const shop = create(ObjectRefSchema, { resource: "namespaces", kind: "Namespace", name: "shop", uid: "n" });
test("the decisions of the cascade of a namespace are those in it", () => {
  expect(aboutCascade(shop, [Phase.HELD])).toEqual([{ targets: [{ namespaces: ["shop"] }], phases: [Phase.HELD] }]);
});

describe("pauses of a cascade", () => {
  const root = create(ObjectRefSchema, {
    group: "apps",
    version: "v1",
    resource: "deployments",
    kind: "Deployment",
    namespace: "shop",
    name: "web",
    uid: "u",
  });
  const owner = scopeOf(root).owner!;
  const pause = (...targets: object[]) => create(PauseSchema, { scope: { targets } });
  test("its scope is the object with all objects below it", () => {
    expect(owner).toEqual({ group: "apps", resource: "deployments", namespace: "shop", name: "web", uid: "u" });
    expect(isOfCascade(pause({ owner }), root)).toBe(true);
    expect(isOfCascade(pause({ owner: { ...owner, uid: "" } }), root)).toBe(true);
  });
  test.each([
    ["everything", []],
    ["another object", [{ owner: { ...owner, name: "other" } }]],
    ["an earlier object of this name", [{ owner: { ...owner, uid: "v" } }]],
    ["a part of it", [{ owner, resources: [{ resource: "pods" }] }]],
    ["some labels", [{ owner, labelSelector: { matchLabels: { a: "b" } } }]],
    ["more than it", [{ owner }, { namespaces: ["shop"] }]],
  ])("%s is another scope", (_, targets) => expect(isOfCascade(pause(...targets), root)).toBe(false));
  test("the scope of a namespace is the objects in it", () => {
    expect(scopeOf(shop)).toEqual({ namespaces: ["shop"], kinds: [] });
    expect(isOfCascade(pause({ namespaces: ["shop"] }), shop)).toBe(true);
    const below = { resource: "namespaces", name: "shop", uid: "n" };
    for (const other of [{ owner: below }, { namespaces: ["shop", "bank"] }, { namespaces: ["shop"], owner: below }])
      expect(isOfCascade(pause(other), shop)).toBe(false);
    expect(isOfCascade(pause({ namespaces: ["shop"] }), root)).toBe(false);
  });
  test("one that has ended pauses nothing", () => {
    expect(isOfCascade(create(PauseSchema, { ...pause({ owner }), expired: true }), root)).toBe(false);
  });
});
