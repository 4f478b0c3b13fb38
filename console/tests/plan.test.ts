import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { expect, test } from "vitest";
import {
  PreviewDeletionResponse_Effect as Effect,
  PreviewDeletionResponseSchema,
} from "../src/generated/ownergraph/graph/v1beta1/graph_service_pb.ts";
import { doubts } from "../src/lib/plan.ts";

type Plan = MessageInitShape<typeof PreviewDeletionResponseSchema>;
const of = (more: Plan) => doubts(create(PreviewDeletionResponseSchema, more));

test("a plan in which objects wait is certain, as for the command", () => {
  expect(of({ totals: [{ kind: "Pod", effect: Effect.WAITS, count: 2n }], guards: [{ guard: "gates/a" }] })).toEqual(
    [],
  );
});
test.each([
  ["incomplete: pods", { meta: { unsynced: [{ resource: "pods" }] } }],
  ["incomplete: jobs.batch", { undecidedBy: [{ group: "batch", resource: "jobs" }] }],
  ["does not contain the object", { missingUids: ["u"] }],
  ["may not see", { redactedCount: 1 }],
  ["effect on 2 objects is unknown", { totals: [{ kind: "Pod", effect: Effect.UNKNOWN, count: 2n }] }],
  ["1 object is held", { totals: [{ kind: "Pod", effect: Effect.HELD, count: 1n }] }],
] as [string, Plan][])("a plan with a doubt: %s", (words, more) => {
  expect(of(more)).toHaveLength(1);
  expect(of(more)[0]).toContain(words);
});
