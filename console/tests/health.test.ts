import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { describe, expect, test } from "vitest";
import {
  DecisionLogStatus_State as LogState,
  GetStatusResponseSchema,
} from "../src/generated/ownergraph/admin/v1beta1/admin_service_pb.ts";
import { findings } from "../src/lib/health.ts";

const found = (status: MessageInitShape<typeof GetStatusResponseSchema>, direct = false) =>
  findings(create(GetStatusResponseSchema, status), direct).map(({ words }) => words);

describe("health", () => {
  test("a collector without a fault has no finding", () => {
    expect(found({})).toEqual([]);
    expect(found({ loopIdle: { seconds: 4n }, stalledFor: {}, decisionLog: { state: LogState.WRITING } })).toEqual([]);
  });
  test("a collector that stands still says so in the words of the command", () => {
    const status = { loopIdle: { seconds: 31n }, stalledFor: { seconds: 31n } };
    expect(found(status)).toEqual(["STOPPED: the collector's loop has made no progress for 31 s"]);
    expect(found({ ...status, loopIdle: {} })).toEqual([
      "STALLED: work is ready, but no attempt ended and nothing was withdrawn for 31 s",
    ]);
    const object = { kind: "ConfigMap", namespace: "a", name: "x" };
    expect(found({ obstacles: [{ what: "delete", object, attempts: 13, why: "too slow" }] })).toEqual([
      "FAILING: delete of ConfigMap a/x was tried 13 times: too slow",
    ]);
    expect(found({ term: {}, queuedItems: 2n, heldItems: 1n, oldestQueuedAge: {} })).toEqual([
      "STOPPED: work is ready, and no executor is connected",
    ]);
  });
  test("only a service grants", () => {
    expect(found({ grantsStopped: "the store went back" })).toEqual(["Nothing is carried out: the store went back"]);
    expect(found({ grantsStopped: "the store went back" }, true)).toEqual([]);
  });
  test("reads and reports that are wrong are named", () => {
    const identity = { executor: "e-0", incarnation: "1f" };
    expect(
      found({
        inconsistentReads: [{ groupResource: { group: "apps", resource: "deployments" }, detail: "7 and 9" }],
        untrueReports: [{ identity, count: 10, refusedFor: { seconds: 540n } }],
      }),
    ).toEqual([
      "INCONSISTENT reads of deployments.apps: 7 and 9",
      "UNTRUE: 10 reports of executor e-0 (process 1f), refused for another 9 m",
    ]);
  });
  test("a list of findings has an end, and says so", () => {
    const words = found({ keptApart: Array.from({ length: 7 }, (_, at) => ({ resource: `r${at}` })) });
    expect(words).toHaveLength(6);
    expect(words[0]).toMatch(/^The resourceVersions of r0 do not match .* add it to --separate-stores$/);
    expect(words[5]).toBe("And 2 more of the collections with other resourceVersions");
  });
  test("a log that is away or loses events is told with why", () => {
    const log = { state: LogState.AWAY, required: true, problem: "refused", waitingEvents: 4n };
    expect(found({ decisionLog: log })).toEqual([
      "Decisions are on JetStream, which is unreachable; grants are suspended (refused), 4 wait",
    ]);
    expect(found({ decisionLog: { state: LogState.WRITING, lostEvents: 2n } })).toEqual([
      "Decisions are on JetStream, 2 lost",
    ]);
  });
});
