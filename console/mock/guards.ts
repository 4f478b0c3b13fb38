// Guards, coverage, executors, faults and the comparison of the synthetic cluster: fixed answers.

import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import {
  DecisionLogStatus_State,
  type GetStatusResponseSchema,
  Guard_Kind,
  GuardSchema,
  ListExecutorsResponseSchema,
} from "../src/generated/ownergraph/admin/v1beta1/admin_service_pb.ts";
import {
  DecisionEventSchema,
  Disagreement_Class,
  Disagreement_Outcome,
  GetParityResponseSchema,
  Phase,
} from "../src/generated/ownergraph/decision/v1beta1/decision_service_pb.ts";
import {
  ListCoverageResponse_State,
  ListCoverageResponseSchema,
} from "../src/generated/ownergraph/graph/v1beta1/graph_service_pb.ts";
import { ItemKind } from "../src/generated/ownergraph/work/v1beta1/work_service_pb.ts";
import type { Entry } from "./cluster.ts";

const ago = (seconds: number) => timestampFromMs(Date.now() - seconds * 1000);

export const guards = (root: Entry) => [
  guard({
    name: "pauses/migration",
    kind: Guard_Kind.PAUSE,
    scope: "namespace billing",
    reason: "migration of the invoices",
    actor: "alice@example.com",
    expireTime: ago(-1800),
    heldItems: 3n,
  }),
  guard({
    name: "protections/keys",
    kind: Guard_Kind.PROTECTION,
    scope: "secrets in namespace shop",
    reason: "keys stay",
    actor: "bob@example.com",
    heldItems: 2n,
  }),
  guard({
    name: "approvals/data",
    kind: Guard_Kind.APPROVAL,
    scope: "persistentvolumeclaims",
    reason: "A person looks at cascades with data.",
    approval: {
      waiting: [
        {
          root: root.node.ref!,
          objects: 544n,
          totals: [
            { resource: { resource: "pods" }, count: 360n },
            { resource: { resource: "persistentvolumeclaims" }, count: 180n },
          ],
          digest: "aa26ce0eeb91793f",
          complete: true,
        },
      ],
    },
  }),
  guard({
    name: "gates/policy",
    kind: Guard_Kind.GATE,
    scope: "all objects",
    reason: "our rules",
    gate: { inFlight: 4n, denied: 1n },
  }),
  guard({
    name: "budgets/calm",
    kind: Guard_Kind.BUDGET,
    scope: "all objects",
    reason: "no surprises",
    effective: false,
    pending: "one executor may still send a write",
    budget: { spent: 470n, exceeded: false },
  }),
];

function guard(init: MessageInitShape<typeof GuardSchema>) {
  return create(GuardSchema, { effective: true, createTime: ago(86_400), ...init });
}

const { FAILED, IGNORED, LISTING, STALE, SYNCED } = ListCoverageResponse_State;
/** Collections that are not synced, with their errors. */
const UNSYNCED: Record<string, [ListCoverageResponse_State, string]> = {
  leases: [STALE, "the watch ended: connection refused"],
  backups: [FAILED, "the server does not answer"],
  archives: [LISTING, ""],
  events: [IGNORED, ""],
};
const COLLECTIONS = {
  "": ["configmaps", "events", "namespaces", "nodes", "persistentvolumeclaims", "pods", "secrets", "services"],
  apps: ["deployments", "replicasets", "statefulsets"],
  batch: ["jobs"],
  "coordination.k8s.io": ["leases"],
  "example.com": ["archives", "backups", "databases", "shards"],
};

export const coverage = () =>
  create(ListCoverageResponseSchema, {
    collections: Object.entries(COLLECTIONS).flatMap(([group, resources]) =>
      resources.map((resource, at) => {
        const [state, error] = UNSYNCED[resource] ?? [SYNCED, ""];
        const wasListed = state === SYNCED || state === STALE;
        const seconds = state === STALE ? 65 : at * at + 1;
        return {
          groupResource: { group, resource },
          state,
          error,
          ...(wasListed ? { progressTime: ago(seconds) } : {}),
          objectCount: BigInt(1000 * at),
        };
      }),
    ),
  });

/** All faults of the collector at once. */
export const broken = {
  loopIdle: { seconds: 42n },
  inconsistentReads: [{ groupResource: { resource: "pods" }, detail: "version 7 has web-1, and version 9 has not" }],
  untrueReports: [
    { identity: { executor: "executor-1", incarnation: "1f" }, count: 10, refusedFor: { seconds: 540n } },
  ],
  keptApart: ["events", "leases", "nodes", "pods", "secrets", "services"].map((resource) => ({ resource })),
  decisionLog: {
    state: DecisionLogStatus_State.AWAY,
    problem: "connection refused",
    waitingEvents: 4n,
    lostEvents: 2n,
  },
  moreObstacles: 3n,
} satisfies MessageInitShape<typeof GetStatusResponseSchema>;

/** Those of one page. */
export const executors = (page: number) =>
  create(ListExecutorsResponseSchema, {
    executors: [0, 1, 2].map((at) => ({
      identity: { executor: `executor-${page * 3 + at}` },
      version: "0.1.0",
      window: 64,
      started: 5 + at * 3,
      buffered: 10 - at,
      heartbeatTime: ago(1),
      connected: at < 2,
    })),
  });

export const parity = () =>
  create(GetParityResponseSchema, {
    since: ago(7200),
    agreed: 12_904n,
    theirsFirst: 211n,
    late: 8n,
    unattributed: 97n,
    withdrawn: 14n,
    comparable: 12_907n,
    classes: [
      { class: Disagreement_Class.UNKNOWN, oursOnly: 1n, theirsOnly: 0n },
      { class: Disagreement_Class.TIMING, oursOnly: 2n, theirsOnly: 0n },
      { class: Disagreement_Class.HELD, oursOnly: 0n, theirsOnly: 31n },
      { class: Disagreement_Class.UNPROVEN, oursOnly: 0n, theirsOnly: 4n },
    ],
    delayP50: { seconds: 1n },
    delayP99: { seconds: 8n },
    wait: { seconds: 80n },
    open: 6n,
    audited: true,
    collections: [
      { groupResource: { resource: "pods" }, agreed: 9000n, oursOnly: 1n, theirsOnly: 12n, unknown: 1n },
      { groupResource: { group: "apps", resource: "replicasets" }, agreed: 3904n, oursOnly: 2n, theirsOnly: 23n },
    ],
  });

export const disagreements = (entries: Entry[]) =>
  entries.map((entry, at) =>
    create(DecisionEventSchema, {
      eventTime: ago(60 * (at + 1)),
      phase: Phase.DISAGREED,
      kind: ItemKind.DELETE,
      target: entry.node.ref!,
      disagreement: {
        number: BigInt(at + 1),
        outcome: at % 2 === 0 ? Disagreement_Outcome.OURS_ONLY : Disagreement_Outcome.THEIRS_ONLY,
        class: at === 0 ? Disagreement_Class.UNKNOWN : Disagreement_Class.HELD,
        decided: ItemKind.DELETE,
        user: "system:serviceaccount:kube-system:generic-garbage-collector",
        auditId: `7d1e${at}`,
      },
    }),
  );
