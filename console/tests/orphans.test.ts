import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { expect, test } from "vitest";
import {
  EdgeSchema,
  ExportGraphResponseSchema,
  NodeSchema,
  NodeState,
  OwnerStanding,
} from "../src/generated/ownergraph/graph/v1beta1/graph_service_pb.ts";
import { ObjectRefSchema } from "../src/generated/ownergraph/type/v1beta1/type_pb.ts";
import { Survey } from "../src/lib/orphans.ts";

const object = (name: string, uid: string) =>
  create(ObjectRefSchema, { kind: "ConfigMap", namespace: "shop", name, uid });
const node = (name: string, uid: string, more: MessageInitShape<typeof NodeSchema> = {}) =>
  create(NodeSchema, { ref: object(name, uid), state: NodeState.LIVE, ...more });
const owned = { ownerReferences: [{ name: "an owner" }] };
const edge = (dependentUid: string, owner: ReturnType<typeof object>, standing = OwnerStanding.DANGLING) =>
  create(EdgeSchema, { dependentUid, ownerUid: owner.uid, owner, standing });
const chunk = (nodes: ReturnType<typeof node>[], edges: ReturnType<typeof edge>[] = []) =>
  create(ExportGraphResponseSchema, { part: { case: "chunk", value: { nodes, edges } } }).part;
/** The findings, as `dependent owner`, and whether their owner is lost. */
const found = ({ reading }: Survey) =>
  reading.findings.map(({ edge, isLost }) => [`${edge.dependentUid} ${edge.owner!.name}`, isLost]);

const old = object("owner", "old");
const now = node("owner", "new");
const dependents = chunk(
  [node("a", "a", owned), node("b", "b", owned)],
  [edge("a", old), edge("b", object("other", "gone")), edge("b", object("owner", "new"), OwnerStanding.SOLID)],
);
test.each([
  ["before", [chunk([now]), dependents]],
  ["after", [dependents, chunk([now])]],
])("an owner that exists again %s its dependents is lost, and counts are those of the command", (_, chunks) => {
  const survey = new Survey();
  for (const part of chunks) survey.take(part);
  expect(found(survey)).toEqual([
    ["a owner", true],
    ["b other", false],
  ]);
  expect(survey.reading.kinds).toEqual([{ kind: "ConfigMap", objects: 3, unowned: 1 }]);
});
test("objects that do not exist are not counted, and are no owner that exists again", () => {
  const survey = new Survey();
  survey.take(dependents);
  for (const state of [NodeState.VIRTUAL, NodeState.GONE]) survey.take(chunk([node("owner", `${state}`, { state })]));
  expect(found(survey)[0]).toEqual(["a owner", false]);
  expect(survey.reading.kinds).toEqual([{ kind: "ConfigMap", objects: 2, unowned: 0 }]);
  expect(survey.reading.read).toBe(4);
});
test("only a reference to an owner that is gone can have lost it", () => {
  const survey = new Survey();
  survey.take(chunk([now, node("a", "a", owned)], [edge("a", old, OwnerStanding.WRONG_NAMESPACE)]));
  expect(found(survey)).toEqual([["a owner", false]]);
});
test("references of the last object of a chunk continue in the next one", () => {
  const survey = new Survey();
  survey.take(chunk([node("a", "a", owned)], [edge("a", old)]));
  survey.take(chunk([], [edge("a", object("other", "gone"))]));
  survey.take(chunk([node("b", "b")], [edge("a", object("third", "gone too"))]));
  expect(found(survey).map(([name]) => name)).toEqual(["a owner", "a other", "a third"]);
});
test("beyond its bounds a survey counts on, and says how much it left out", () => {
  const survey = new Survey(1, 1);
  for (const part of [dependents, chunk([now])]) survey.take(part);
  const { findings, wrong, forgotten, kinds } = survey.reading;
  expect([findings.length, wrong, forgotten, kinds[0]!.objects]).toEqual([1, 2, 2, 3]);
});
