// The three services over the synthetic cluster.

import { groupBy } from "../src/lib/group.ts";
import { create } from "@bufbuild/protobuf";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { Code, ConnectError, type ConnectRouter, type HandlerContext } from "@connectrpc/connect";
import {
  AdminService,
  DecisionLogStatus_State,
  GetStatusResponseSchema,
} from "../src/generated/ownergraph/admin/v1beta1/admin_service_pb.ts";
import {
  type DecisionEvent,
  type DecisionFilter,
  DecisionService,
  Phase,
} from "../src/generated/ownergraph/decision/v1beta1/decision_service_pb.ts";
import {
  Collecting,
  ExplainObjectResponseSchema,
  GraphService,
  NodeState,
  PreviewDeletionResponse_Effect as Effect,
  PreviewDeletionResponse_GuardEffect as GuardEffect,
  Reason_Code,
  ReasonSchema,
  Verdict,
  WatchDependentsResponse_ChangeType as ChangeType,
} from "../src/generated/ownergraph/graph/v1beta1/graph_service_pb.ts";
import {
  type ObjectFilter,
  type ObjectRef,
  PropagationPolicy,
  ReplicaRole,
  ResponseMetaSchema,
} from "../src/generated/ownergraph/type/v1beta1/type_pb.ts";
import { Outcome } from "../src/generated/ownergraph/work/v1beta1/work_service_pb.ts";
import type { Cluster, Entry } from "./cluster.ts";
import { faults, refuse } from "./faults.ts";
import { broken, coverage, disagreements, executors, guards, parity } from "./guards.ts";
import { pauses } from "./pauses.ts";

const DIGEST = "1f6d08a22f7e9d0d";

const meta = () =>
  create(ResponseMetaSchema, {
    replica: "graph-service-0",
    role: ReplicaRole.LEADER,
    lag: faults.late ? { seconds: 120n } : { nanos: 400_000_000 },
    unsynced: [{ group: "coordination.k8s.io", resource: "leases" }],
    unsyncedCount: 1,
    clusterUid: "mock",
  });

/** Values that others push, until the call ends. */
async function* pushed<T>(
  subscribe: (push: (value: T) => void) => () => void,
  context: HandlerContext,
): AsyncIterable<T[]> {
  let waiting: T[] = [];
  let wake = () => {};
  const end = subscribe((value) => (waiting.push(value), wake()));
  context.signal.addEventListener("abort", () => wake());
  try {
    while (!context.signal.aborted) {
      if (waiting.length === 0 || faults.mute)
        await new Promise<void>((resolve) => {
          wake = resolve;
          setTimeout(resolve, 2000);
        });
      if (faults.mute) continue;
      const batch = waiting;
      waiting = [];
      yield batch;
    }
  } finally {
    end();
  }
}

const within = (filters: ObjectFilter[], ref: ObjectRef) =>
  filters.length === 0 ||
  filters.some(
    ({ namespaces, uids, cel }) =>
      (namespaces.length === 0 || namespaces.includes(ref.namespace)) &&
      (uids.length === 0 || uids.includes(ref.uid)) &&
      (!cel.includes("contains(") || ref.name.includes(/contains\("(.*)"\)/.exec(cel)?.[1] ?? "")) &&
      (!cel.includes("object.name ==") || ref.name === /object\.name == "(.*?)"/.exec(cel)?.[1]) &&
      (!cel.includes("object.resource ==") || cel.includes(`object.resource == "${ref.resource}"`)),
  );

const admits = (filters: DecisionFilter[], event: DecisionEvent) =>
  filters.length === 0 ||
  filters.some(
    ({ targets, phases, kinds, causes, cel }) =>
      within(targets, event.target!) &&
      (phases.length === 0 || phases.includes(event.phase)) &&
      (kinds.length === 0 || kinds.includes(event.kind)) &&
      (causes.length === 0 || causes.includes(event.cause)) &&
      (cel === "" ||
        (cel.includes(event.root?.uid || "-") && !cel.includes("cause_chain")) ||
        (cel.includes("THROTTLED") && event.report?.outcome === Outcome.THROTTLED) ||
        cel.includes("true")),
  );

export function routes(cluster: Cluster) {
  const wanted = (ref: ObjectRef | undefined): Entry => {
    const entry = cluster.find(ref);
    if (!entry) throw refuse("no such object", Code.NotFound, "OBJECT_NOT_FOUND");
    return entry;
  };
  const reasonsOf = ({ node, edges }: Entry) => {
    const owners = edges.map((edge) => edge.owner!);
    const reason = (code: Reason_Code, related: ObjectRef[] = [], detail = "") =>
      create(ReasonSchema, {
        code,
        related,
        relatedCount: BigInt(related.length),
        detail,
        since: timestampFromMs(Date.now() - 600_000),
      });
    if (node.state === NodeState.GONE) return { verdict: Verdict.GONE, reasons: [], departure: { byUs: true } };
    if (cluster.failing.has(node.ref!.uid)) {
      const why = "webhook policy.example.com: connection refused";
      return { verdict: Verdict.COLLECTABLE, reasons: [reason(Reason_Code.ADMISSION_DENIED, [], why)] };
    }
    const foreign = node.finalizers.find((name) => name.includes("/"));
    if (foreign) return { verdict: Verdict.BLOCKED, reasons: [reason(Reason_Code.FINALIZER_PRESENT, [], foreign)] };
    if (node.collecting === Collecting.HELD)
      return { verdict: Verdict.HELD, reasons: [reason(Reason_Code.PROTECTED, [], "protections/keys: keys stay")] };
    if (node.state === NodeState.TERMINATING) {
      const below = [...(cluster.children.get(node.ref!.uid) ?? [])]
        .slice(0, 20)
        .map((uid) => cluster.entries.get(uid)!.node.ref!);
      const blocking = create(ReasonSchema, {
        code: Reason_Code.BLOCKING_DEPENDENTS,
        related: below,
        relatedCount: BigInt(node.blockingDependentCount),
      });
      return {
        verdict: below.length > 0 ? Verdict.BLOCKED : Verdict.IN_PROGRESS,
        reasons: below.length > 0 ? [blocking] : [],
      };
    }
    if (node.collecting) return { verdict: Verdict.COLLECTABLE, reasons: [reason(Reason_Code.OWNERS_WAITING, owners)] };
    if (owners.length === 0) return { verdict: Verdict.UNOWNED, reasons: [] };
    return { verdict: Verdict.KEPT, reasons: [reason(Reason_Code.SOLID_OWNER, owners)] };
  };
  const status = () => {
    const waiting = cluster.below(cluster.orders.node.ref!.uid).filter(({ entry }) => entry.node.collecting);
    return create(GetStatusResponseSchema, {
      clusterUid: "mock",
      version: "0.1.0",
      term: { electionUid: "e", number: 7n },
      leader: "graph-service-0",
      nodeCount: BigInt(cluster.entries.size),
      edgeCount: BigInt(cluster.entries.size - 40),
      virtualNodeCount: 1n,
      queuedItems: BigInt(waiting.length),
      leasedItems: 12n,
      heldItems: 2n,
      oldestQueuedAge: { seconds: 45n },
      oldestHeldAge: { seconds: 3700n },
      executors: 3,
      unsynced: meta().unsynced,
      undecidedCounts: { owner_unverified: 2n },
      obstacles: [
        {
          what: "webhook policy.example.com",
          items: 4n,
          why: "connection refused",
          sinceTime: timestampFromMs(Date.now() - 200_000),
        },
      ],
      decisionLog: { state: DecisionLogStatus_State.IN_MEMORY, newest: { logId: "mock", sequence: cluster.sequence } },
      meta: meta(),
      ...(faults.broken ? broken : {}),
    });
  };
  const position = () => ({ logId: "mock", sequence: cluster.sequence });
  const next = (pageToken: string) => ({ nextPageToken: faults.crowded ? `${Number(pageToken) + 1}` : "" });

  return (router: ConnectRouter) => {
    router.service(GraphService, {
      getObject: ({ ref, readMask }) => {
        const { node } = wanted(ref);
        const labels = readMask
          ? { labels: { app: "web", "app.kubernetes.io/instance": "web" }, annotations: { note: "<b>text</b>" } }
          : {};
        return { node: { ...node, ...labels }, meta: meta() };
      },
      listOwners: ({ ref }) => ({
        owners: wanted(ref).edges.map((edge) => ({
          node: cluster.entries.get(edge.ownerUid)!.node,
          depth: 1,
          edges: [edge],
        })),
        meta: meta(),
      }),
      explainObject: ({ ref }) => {
        const entry = cluster.gone.get(ref?.uid ?? "") ?? wanted(ref);
        return create(ExplainObjectResponseSchema, {
          node: entry.node,
          ...reasonsOf(entry),
          owners: entry.edges,
          meta: meta(),
        });
      },
      async *watchDependents({ ref, include, maxDepth }, context) {
        const root = ref && wanted(ref).node.ref!.uid;
        if (faults.limit) throw refuse("too many", Code.ResourceExhausted, "TRAVERSAL_LIMIT", { limit: "200000" });
        const admitted = [...cluster.entries.values()].filter(({ node }) => within(include, node.ref!));
        const all = root ? cluster.below(root, maxDepth || 1) : admitted.map((entry) => ({ entry, depth: 0 }));
        for (let at = 0; at < all.length; at += 500) {
          const changes = all
            .slice(at, at + 500)
            .map(({ entry, depth }) => ({ type: ChangeType.PRESENT, node: entry.node, edges: entry.edges, depth }));
          yield { event: { case: "batch" as const, value: { changes } } };
        }
        yield {
          event: { case: "bookmark" as const, value: { snapshotComplete: true, redactedCount: 2 } },
          meta: meta(),
        };
        const known = new Map(all.map(({ entry, depth }) => [entry.node.ref!.uid, depth]));
        const changes = pushed<{ entry: Entry; gone: boolean }>(
          (push) => (cluster.watchers.add(push), () => cluster.watchers.delete(push)),
          context,
        );
        for await (const batch of changes) {
          // Each object at most once, in its last state.
          const last = new Map(batch.map((change) => [change.entry.node.ref!.uid, change]));
          const value = [...last.values()]
            .filter(({ entry }) => known.has(entry.node.ref!.uid))
            .map(({ entry, gone }) => ({
              type: gone ? ChangeType.REMOVED : ChangeType.CHANGED,
              node: entry.node,
              edges: entry.edges,
              depth: known.get(entry.node.ref!.uid)!,
            }));
          if (value.length > 0)
            yield { event: { case: "batch" as const, value: { changes: value } }, resumeToken: new Uint8Array([1]) };
          else yield { event: { case: "bookmark" as const, value: { redactedCount: 2 } }, meta: meta() };
        }
      },
      previewDeletion: ({ targets, propagationPolicy }) => {
        const root = wanted(targets[0]);
        const all = [{ entry: root, depth: 0 }, ...cluster.below(root.node.ref!.uid)];
        const orphan = propagationPolicy === PropagationPolicy.ORPHAN;
        const entries = all
          .map(({ entry, depth }) => {
            const { reasons } = reasonsOf(entry);
            if (depth > 0 && orphan)
              return {
                ref: entry.node.ref!,
                effect: depth === 1 ? Effect.ORPHANED : Effect.UNSPECIFIED,
                step: 1,
                reasons: [],
              };
            const waits = entry.node.finalizers.some((name) => name.includes("/"));
            const held = entry.node.collecting === Collecting.HELD;
            const effect = held
              ? Effect.HELD
              : waits
                ? Effect.WAITS
                : depth > 0 && entry.edges.length > 1
                  ? Effect.REFERENCE_REMOVED
                  : Effect.DELETE;
            return { ref: entry.node.ref!, effect, step: depth + 1, reasons: effect === Effect.DELETE ? [] : reasons };
          })
          .filter(({ effect }) => effect !== Effect.UNSPECIFIED);
        const totals = [...groupBy(entries, ({ ref, effect }) => `${ref.kind} ${effect}`).values()].map((group) => ({
          group: group[0]!.ref.group,
          kind: group[0]!.ref.kind,
          effect: group[0]!.effect,
          count: BigInt(group.length),
        }));
        const guards = [
          {
            guard: "approvals/data",
            effect: GuardEffect.AWAITS_APPROVAL,
            count: BigInt(entries.length),
            reason: "look first",
            root: root.node.ref!,
            cascadeDigest: "aa26ce0eeb91793f",
          },
        ];
        // Plans in the namespace shop are certain, unless an object in them is held.
        const whole = root.node.ref!.namespace === "shop";
        return {
          entries: entries.slice(0, 20_000),
          totals,
          guards,
          digest: DIGEST,
          omittedGuards: whole ? 0 : 3,
          redactedCount: whole ? 0 : 1,
          meta: { ...meta(), ...(whole ? { unsynced: [], unsyncedCount: 0 } : {}) },
        };
      },
      findStuckObjects: ({ include, minAge }) => {
        const least = Date.now() - Number(minAge?.seconds ?? 300n) * 1000;
        const objects = [...cluster.entries.values()]
          .filter(
            ({ node }) =>
              within(include, node.ref!) &&
              (node.collecting === Collecting.HELD ||
                (node.deleteTime && Number(node.deleteTime.seconds) * 1000 <= least)),
          )
          .map((entry) => ({
            node: entry.node,
            ...reasonsOf(entry),
            since: entry.node.deleteTime ?? timestampFromMs(Date.now() - 3_700_000),
            redactedCount: entry.node.ref!.kind === "Backup" ? 1 : 0,
          }))
          .sort((a, b) => Number(a.since.seconds - b.since.seconds));
        return { objects: objects.slice(0, 1000), meta: meta() };
      },
      findCycles: ({ include }) => {
        const members = [...cluster.entries.values()].filter(
          ({ node }) => node.ref!.namespace === "ring" && within(include, node.ref!),
        );
        const cycles =
          members.length === 0
            ? []
            : [
                {
                  members: members.map(({ node }) => node),
                  edges: members.flatMap(({ edges }) => edges),
                  deadlocked: true,
                  unblockCandidateUid: members[0]!.node.ref!.uid,
                  // As of a cycle of more objects than an answer has.
                  memberCount: 5,
                  edgeCount: 7,
                },
              ];
        return { cycles, meta: meta() };
      },
      async *exportGraph({ include }, context) {
        const all = [...cluster.entries.values()].filter(({ node }) => within(include, node.ref!));
        yield {
          part: {
            case: "header" as const,
            value: { meta: meta(), nodeEstimate: faults.narrow ? 0n : BigInt(cluster.entries.size) },
          },
        };
        while (faults.mute && !context.signal.aborted) await new Promise((resolve) => setTimeout(resolve, 200));
        for (let at = 0; at < all.length; at += 500) {
          const some = all.slice(at, at + 500);
          yield {
            part: {
              case: "chunk" as const,
              value: { nodes: some.map(({ node }) => node), edges: some.flatMap(({ edges }) => edges) },
            },
          };
        }
        yield { part: { case: "footer" as const, value: { nodeCount: BigInt(all.length) } } };
      },
      listCoverage: ({ pageToken }) => ({ ...coverage(), ...next(pageToken) }),
    });
    router.service(DecisionService, {
      listDecisions: ({ include, startTime, pageToken }) => {
        // New events are at the end. Those before a place in the log stay there until the log is cut.
        const end = pageToken ? Number(pageToken) : cluster.log.length;
        const admitted = cluster.log
          .map((event, at) => ({ event, at }))
          .slice(0, end)
          .filter(({ event }) => admits(include, event) && event.eventTime!.seconds >= (startTime?.seconds ?? 0n))
          .reverse();
        const page = admitted.slice(0, 1000);
        const nextPageToken = admitted.length > page.length ? `${page.at(-1)!.at}` : "";
        return { events: page.map(({ event }) => event), nextPageToken, meta: meta() };
      },
      getDecision: ({ decisionId }) => ({
        events: cluster.log.filter((event) => event.decisionId === decisionId),
        meta: meta(),
      }),
      async *watchDecisions({ start, include }, context) {
        const cel = include[0]?.cel ?? "";
        if (cel.includes("nonsense")) throw new ConnectError("1:1: unknown variable nonsense", Code.InvalidArgument);
        if (start.case === "openThenFollow") {
          const last = new Map(cluster.log.map((event) => [event.decisionId, event]));
          // As the service does it: a decision that waits for a retry begins as proposed.
          const events = [...last.values()]
            .map((event) => (event.phase === Phase.FAILED ? { ...event, phase: Phase.PROPOSED } : event))
            .filter(({ phase }) => phase === Phase.PROPOSED || phase === Phase.HELD)
            .filter((event) => admits(include, event));
          yield { event: { case: "batch" as const, value: { events } } };
          yield {
            event: { case: "bookmark" as const, value: { snapshotComplete: true } },
            position: position(),
            head: position(),
          };
        } else if (start.case === "startTime") {
          const events = cluster.log.filter(
            (event) => event.eventTime!.seconds >= start.value.seconds && admits(include, event),
          );
          yield {
            event: { case: "batch" as const, value: { events: events.slice(-256) } },
            position: position(),
            head: position(),
            meta: meta(),
          };
        }
        const events = pushed<DecisionEvent>(
          (push) => (cluster.readers.add(push), () => cluster.readers.delete(push)),
          context,
        );
        for await (const batch of events) {
          const value = batch.filter((event) => admits(include, event));
          if (value.length > 0)
            yield {
              event: { case: "batch" as const, value: { events: value } },
              position: position(),
              head: position(),
            };
          else yield { event: { case: "bookmark" as const, value: {} }, position: position(), head: position() };
        }
      },
      getParity: () => parity(),
      listDisagreements: () => ({ events: disagreements([...cluster.entries.values()].slice(0, 6)), meta: meta() }),
    });
    router.service(AdminService, {
      getStatus: status,
      async *watchStatus(_, context) {
        while (!context.signal.aborted) {
          if (!faults.mute) yield { event: { case: "status" as const, value: status() } };
          await new Promise((resolve) => setTimeout(resolve, 1000));
        }
      },
      listExecutors: ({ pageToken }) => ({ ...executors(Number(pageToken)), ...next(pageToken) }),
      listPauses: () => ({ pauses: [...pauses.values()], meta: meta() }),
      resumeCollection: ({ name }) => (pauses.delete(name), { meta: meta() }),
      listGuards: () => ({ guards: guards(cluster.orders), meta: meta() }),
    });
  };
}
