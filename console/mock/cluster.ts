// A synthetic cluster in memory, with a cascade that is under way. For development and tests only.

import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import {
  type DecisionEvent,
  AttemptSchema,
  Cause,
  DecisionEventSchema,
  Phase,
} from "../src/generated/ownergraph/decision/v1beta1/decision_service_pb.ts";
import {
  type Edge,
  type Node,
  Collecting,
  EdgeSchema,
  NodeSchema,
  NodeState,
  OwnerStanding,
} from "../src/generated/ownergraph/graph/v1beta1/graph_service_pb.ts";
import { type ObjectRef, ObjectRefSchema } from "../src/generated/ownergraph/type/v1beta1/type_pb.ts";
import { ItemKind, Outcome } from "../src/generated/ownergraph/work/v1beta1/work_service_pb.ts";
import type { Status } from "../src/lib/words.ts";

export interface Entry {
  node: Node;
  edges: Edge[];
}

const KINDS: Record<string, [string, string]> = {
  Deployment: ["apps", "deployments"],
  ReplicaSet: ["apps", "replicasets"],
  StatefulSet: ["apps", "statefulsets"],
  Pod: ["", "pods"],
  ConfigMap: ["", "configmaps"],
  Namespace: ["", "namespaces"],
  Secret: ["", "secrets"],
  PersistentVolumeClaim: ["", "persistentvolumeclaims"],
  Backup: ["example.com", "backups"],
  Database: ["example.com", "databases"],
  Archive: ["example.com", "archives"],
  Shard: ["example.com", "shards"],
};

export class Cluster {
  entries = new Map<string, Entry>();
  children = new Map<string, Set<string>>();
  /** What went, by uid. */
  gone = new Map<string, Entry>();
  /** Objects whose deletion fails. */
  failing = new Set<string>();
  log: DecisionEvent[] = [];
  sequence = 0n;
  /** Called for each object that changes or goes, and for each event of the log. */
  watchers = new Set<(change: { entry: Entry; gone: boolean }) => void>();
  readers = new Set<(event: DecisionEvent) => void>();
  #spoiled = new Set<string>();
  #uids = 0;
  #storm: Entry | undefined;
  #leaves: string[] = [];
  orders: Entry;

  constructor() {
    this.#shop();
    this.#archive();
    this.#oddities();
    this.orders = this.#database();
    this.#history();
    for (const name of ["billing", "bulk", "ring", "shop"]) this.add("Namespace", "", name);
  }

  add(
    kind: string,
    namespace: string,
    name: string,
    owners: Entry[] = [],
    more: MessageInitShape<typeof NodeSchema> = {},
  ): Entry {
    const [group, resource] = KINDS[kind]!;
    this.#uids += 1;
    const uid = `00000000-0000-4000-8000-${this.#uids.toString(16).padStart(12, "0")}`;
    const ref = create(ObjectRefSchema, { group, version: "v1", resource, kind, namespace, name, uid });
    const node = create(NodeSchema, { ref, state: NodeState.LIVE, resourceVersion: `${1000 + this.#uids}`, ...more });
    const entry: Entry = { node, edges: [] };
    owners.forEach((owner, index) => this.own(owner, entry, index === 0));
    this.entries.set(uid, entry);
    return entry;
  }

  own(owner: Entry, entry: Entry, controller: boolean, standing = OwnerStanding.SOLID): void {
    const of = owner.node.ref!;
    const reference = {
      apiVersion: of.group ? `${of.group}/v1` : "v1",
      kind: of.kind,
      name: of.name,
      uid: of.uid,
      controller,
      blockOwnerDeletion: controller,
    };
    entry.edges.push(
      create(EdgeSchema, { ownerUid: of.uid, dependentUid: entry.node.ref!.uid, reference, standing, owner: of }),
    );
    entry.node.ownerReferences.push(entry.edges.at(-1)!.reference!);
    entry.node.ownerCount += 1;
    owner.node.dependentCount += 1;
    if (controller) owner.node.blockingDependentCount += 1;
    const below = this.children.get(of.uid) ?? new Set();
    this.children.set(of.uid, below.add(entry.node.ref!.uid));
  }

  find(ref: ObjectRef | undefined): Entry | undefined {
    if (!ref) return undefined;
    if (ref.uid) return this.entries.get(ref.uid);
    for (const entry of this.entries.values()) {
      const of = entry.node.ref!;
      const kind = ref.resource ? ref.resource === of.resource : ref.kind === of.kind;
      if (kind && ref.name === of.name && ref.namespace === of.namespace) return entry;
    }
    return undefined;
  }

  /** The objects below another, breadth first, with their depths. */
  below(root: string, depth = 64): { entry: Entry; depth: number }[] {
    const found: { entry: Entry; depth: number }[] = [];
    const met = new Set([root]);
    let level = [root];
    for (let at = 1; at <= depth && level.length > 0; at += 1) {
      const next: string[] = [];
      for (const owner of level) {
        for (const uid of this.children.get(owner) ?? []) {
          const entry = this.entries.get(uid);
          if (!entry || met.has(uid)) continue;
          met.add(uid);
          next.push(uid);
          found.push({ entry, depth: at });
        }
      }
      level = next;
    }
    return found;
  }

  record(entry: Entry, phase: Phase, root: ObjectRef | undefined, at = Date.now(), kind = ItemKind.DELETE): void {
    this.sequence += 1n;
    const event = create(DecisionEventSchema, {
      position: { logId: "mock", sequence: this.sequence },
      eventTime: timestampFromMs(at),
      decisionId: `d-${entry.node.ref!.uid.slice(-6)}`,
      phase,
      attempt: phase === Phase.PROPOSED || phase === Phase.HELD ? 0 : 1,
      cause: entry.node.ref!.kind === "Secret" ? Cause.DANGLING_REFERENCE : Cause.OWNERS_GONE,
      kind,
      target: entry.node.ref!,
      ...(root ? { root, causeChain: [root], rootDeletionTime: timestampFromMs(at - 4000) } : {}),
      executor: phase === Phase.LEASED || phase === Phase.SUCCEEDED ? "executor-1" : "",
      guard: phase === Phase.HELD ? "protections/keys" : "",
    });
    this.log.push(event);
    if (this.log.length > 8000) this.log.splice(0, 2000);
    for (const read of this.readers) read(event);
  }

  /** One moment of the cascade: some leaves of the database go. It begins again when all have gone. */
  tick(): void {
    const root = this.orders.node.ref!;
    const leaves = this.below(root.uid).filter(
      ({ entry: { node } }) =>
        node.dependentCount === 0 && node.finalizers.length === 0 && node.collecting !== Collecting.HELD,
    );
    if (leaves.length === 0) {
      for (const { entry } of this.below(root.uid)) this.#remove(entry);
      this.#remove(this.orders);
      this.orders = this.#database();
      return;
    }
    for (const { entry } of leaves.slice(0, 1 + Math.floor(Math.random() * 4))) {
      this.record(entry, Phase.LEASED, root);
      this.record(entry, Phase.SUCCEEDED, root);
      this.#remove(entry);
      this.record(entry, Phase.CONFIRMED, root);
    }
  }

  /** A cascade of its own, of which nothing goes until `blow`. */
  storm(objects: number): void {
    for (const uid of [this.#storm?.node.ref!.uid ?? "", ...this.#leaves]) this.entries.delete(uid);
    const marked = timestampFromMs(Date.now());
    const terminating = { state: NodeState.TERMINATING, deleteTime: marked, deletingDependents: true };
    const root = (this.#storm = this.add("Database", "bulk", "storm", [], terminating));
    const shards = Array.from({ length: 20 }, (_, at) => this.add("Shard", "bulk", `storm-${at}`, [root], terminating));
    this.#leaves = Array.from({ length: objects - shards.length }, (_, at) => {
      const leaf = this.add("ConfigMap", "bulk", `storm-${at % 20}-${at}`, [shards[at % 20]!], {
        collecting: Collecting.QUEUED,
      });
      leaf.edges[0]!.standing = OwnerStanding.WAITING;
      return leaf.node.ref!.uid;
    });
  }

  /** Some objects of the storm go. Returns how many are left. */
  blow(objects: number): number {
    for (const uid of this.#leaves.splice(0, objects)) {
      const entry = this.entries.get(uid)!;
      for (const phase of [Phase.LEASED, Phase.SUCCEEDED]) this.record(entry, phase, this.#storm!.node.ref);
      this.#remove(entry);
      this.record(entry, Phase.CONFIRMED, this.#storm!.node.ref);
    }
    return this.#leaves.length;
  }

  /** Deletions of some objects of the storm fail. */
  fail(objects: number): void {
    for (const uid of this.#leaves.slice(0, objects)) {
      this.failing.add(uid);
      this.record(this.entries.get(uid)!, Phase.FAILED, this.#storm!.node.ref);
    }
  }

  /** The objects of this name go, and others have it then. */
  anew(name: string): void {
    for (const entry of [...this.entries.values()].filter(({ node }) => node.ref!.name === name)) {
      this.#remove(entry);
      this.add(entry.node.ref!.kind, entry.node.ref!.namespace, name);
    }
  }

  /** The objects of this name change, and have failed then. */
  spoil(name: string): void {
    for (const entry of this.entries.values()) {
      if (entry.node.ref!.name !== name) continue;
      this.#spoiled.add(entry.node.ref!.uid);
      entry.node.resourceVersion += "0";
      for (const watch of this.watchers) watch({ entry, gone: false });
    }
  }

  /** The status of an object as the back end reads it, and why. */
  status({ uid, resource, namespace }: { uid: string; resource: string; namespace: string }): [Status, string] {
    if (namespace === "billing") return ["Unknown", `you lack the right to get ${resource} in namespace ${namespace}`];
    const node = this.entries.get(uid)?.node;
    if (!node) return ["NotFound", "the API server has no object of this name"];
    if (node.state === NodeState.TERMINATING) return ["Terminating", ""];
    if (this.#spoiled.has(uid)) return ["Failed", "back-off 5m0s restarting failed container"];
    if (node.ref!.kind === "Deployment") return ["InProgress", "Deployment does not have minimum availability."];
    return ["Current", ""];
  }

  /** The storm ends. */
  calm(): void {
    const root = this.#storm!;
    this.blow(Infinity);
    for (const { entry } of this.below(root.node.ref!.uid)) this.#remove(entry);
    this.#remove(root);
  }

  #remove(entry: Entry): void {
    const uid = entry.node.ref!.uid;
    this.entries.delete(uid);
    this.gone.set(uid, entry);
    entry.node.state = NodeState.GONE;
    for (const edge of entry.edges) {
      const owner = this.entries.get(edge.ownerUid);
      this.children.get(edge.ownerUid)?.delete(uid);
      if (!owner) continue;
      owner.node.dependentCount -= 1;
      if (edge.reference?.blockOwnerDeletion) owner.node.blockingDependentCount -= 1;
      for (const watch of this.watchers) watch({ entry: owner, gone: false });
    }
    for (const watch of this.watchers) watch({ entry, gone: true });
  }

  #shop(): void {
    const web = this.add("Deployment", "shop", "web");
    const current = this.add("ReplicaSet", "shop", "web-7f9c", [web]);
    for (const name of ["web-7f9c-2xk8q", "web-7f9c-p9d4m", "web-7f9c-zz7wl"]) this.add("Pod", "shop", name, [current]);
    for (let old = 0; old < 9; old += 1)
      this.add("ReplicaSet", "shop", `web-${(old * 7919 + 4096).toString(16)}`, [web]);
    const shared = this.add("ConfigMap", "shop", "web-settings", [web]);
    this.own(current, shared, false);
    this.add("Secret", "shop", "api-key", [web], { collecting: Collecting.HELD });
  }

  #database(): Entry {
    const marked = timestampFromMs(Date.now() - 45_000);
    const terminating = {
      state: NodeState.TERMINATING,
      deleteTime: marked,
      finalizers: ["foregroundDeletion"],
      finalizerCount: 1,
      deletingDependents: true,
    };
    const root = this.add("Database", "shop", "orders", [], terminating);
    const sets = ["primary", "replica", "archive"].map((name) =>
      this.add("StatefulSet", "shop", `orders-${name}`, [root], terminating),
    );
    sets.forEach((set, index) => {
      for (let pod = 0; pod < 120; pod += 1) {
        const owner = this.add("Pod", "shop", `${set.node.ref!.name}-${pod}`, [set], { collecting: Collecting.QUEUED });
        if (pod % 2 === index % 2)
          this.add("PersistentVolumeClaim", "shop", `data-${set.node.ref!.name}-${pod}`, [owner], {
            collecting: Collecting.QUEUED,
          });
      }
    });
    this.add("Secret", "shop", "orders-ca", [root], { collecting: Collecting.HELD });
    const stuck = {
      state: NodeState.TERMINATING,
      deleteTime: timestampFromMs(Date.now() - 700_000),
      finalizers: ["backup.example.com/s3"],
      finalizerCount: 1,
    };
    this.add("Backup", "shop", "orders-nightly", [root], stuck);
    for (const { entry } of [{ entry: root }, ...this.below(root.node.ref!.uid)]) {
      for (const edge of entry.edges) edge.standing = OwnerStanding.WAITING;
      if (entry.node.collecting)
        this.record(entry, entry.node.collecting === Collecting.HELD ? Phase.HELD : Phase.PROPOSED, root.node.ref);
    }
    return root;
  }

  /** 12,431 objects under one root. */
  #archive(): void {
    const root = this.add("Archive", "bulk", "everything");
    const shards = Array.from({ length: 30 }, (_, at) => this.add("Shard", "bulk", `shard-${at}`, [root]));
    for (let at = 0; at < 12_400; at += 1) {
      const more =
        at % 400 === 7
          ? { collecting: Collecting.HELD }
          : at % 300 === 11
            ? {
                state: NodeState.TERMINATING,
                deleteTime: timestampFromMs(Date.now() - at * 1000),
                finalizers: ["example.com/cleanup"],
                finalizerCount: 1,
              }
            : {};
      this.add("ConfigMap", "bulk", `entry-${at.toString().padStart(5, "0")}`, [shards[at % 30]!], more);
    }
  }

  #oddities(): void {
    const lost = this.add("ConfigMap", "shop", "lost-owner", [], { state: NodeState.VIRTUAL });
    const secret = this.add("Secret", "shop", "leftover");
    this.own(lost, secret, false, OwnerStanding.DANGLING);
    const renewed = this.add("ConfigMap", "shop", "renewed", [], { state: NodeState.VIRTUAL });
    this.own(renewed, this.add("Secret", "shop", "of-renewed"), false, OwnerStanding.DANGLING);
    this.add("ConfigMap", "shop", "renewed");
    // References name owners as they like.
    const odd = this.add("ConfigMap", "shop", "<img src=x onerror=alert(1)>\u202egnp", [], {
      state: NodeState.VIRTUAL,
    });
    this.own(odd, this.add("Secret", "shop", "odd-owner"), false, OwnerStanding.DANGLING);
    // A grace period ends later: the time of the deletion is in the future.
    const graceful = { state: NodeState.TERMINATING, deleteTime: timestampFromMs(Date.now() + 3_600_000) };
    this.add("Pod", "shop", "graceful", [], graceful);
    const keeper = this.add("Secret", "shop", "keeper");
    this.add("ConfigMap", "shop", "owned-twice", [keeper, keeper]);
    const owners = Array.from({ length: 25 }, (_, at) => this.add("Secret", "billing", `owner-${at}`));
    this.add("ConfigMap", "billing", "owned-by-many", owners);
    this.add("Pod", "shop", "reborn");
    const elsewhere = this.add("ConfigMap", "billing", "misplaced");
    this.own([...this.entries.values()][0]!, elsewhere, false, OwnerStanding.WRONG_NAMESPACE);
    const waiting = {
      state: NodeState.TERMINATING,
      deleteTime: timestampFromMs(Date.now() - 3_600_000),
      deletingDependents: true,
      finalizers: ["foregroundDeletion"],
      finalizerCount: 1,
    };
    const a = this.add("ConfigMap", "ring", "a", [], waiting);
    const b = this.add("ConfigMap", "ring", "b", [a], waiting);
    this.own(b, a, true, OwnerStanding.WAITING);
  }

  #history(): void {
    const now = Date.now();
    const gone = Array.from({ length: 900 }, (_, at) => this.add("Pod", "shop", `job-${at}`));
    gone.forEach((entry, at) => {
      const when = Math.round(now - 590_000 + at * 600 + Math.sin(at / 40) * 9000);
      if (at % 9 === 0) {
        this.record(entry, Phase.FAILED, this.orders.node.ref, when - 1500);
        this.log.at(-1)!.report = create(AttemptSchema, { outcome: Outcome.THROTTLED, httpStatus: 429 });
      }
      this.record(entry, Phase.SUCCEEDED, this.orders.node.ref, when);
      this.record(entry, Phase.CONFIRMED, this.orders.node.ref, when + 300);
      this.entries.delete(entry.node.ref!.uid);
    });
  }
}
