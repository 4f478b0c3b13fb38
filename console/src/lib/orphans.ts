// What an exported graph says about owners: objects without any, and references that lead nowhere or wrong.

import {
  type Edge,
  type ExportGraphResponse,
  type Node,
  NodeState,
  OwnerStanding,
} from "../generated/ownergraph/graph/v1beta1/graph_service_pb.ts";
import type { ObjectRef, ResponseMeta } from "../generated/ownergraph/type/v1beta1/type_pb.ts";

export interface Finding {
  node: Node;
  edge: Edge;
  /** The owner is gone, and an object of its name exists with another uid. */
  isLost: boolean;
}
export interface Counted {
  /** `Pod`, `Deployment.apps`. */
  kind: string;
  objects: number;
  unowned: number;
}
/** What has been read so far. */
export interface Reading {
  findings: Finding[];
  /** The number of all findings: `findings` has the first of them. */
  wrong: number;
  /** By name. */
  kinds: Counted[];
  /** The number of objects. */
  read: number;
  /** The number of objects of the graph; 0 if the caller may not see all of them. */
  estimate: number;
  /** How many objects beyond the maximum were compared with no owner that is gone. */
  forgotten: number;
  meta: ResponseMeta | undefined;
  isWhole: boolean;
}

export const FOUND_MAX = 10_000;
/** Names take about 100 bytes each. */
export const NAMES_MAX = 500_000;
const FINE = [OwnerStanding.SOLID, OwnerStanding.WAITING, OwnerStanding.ORPHANING];
const THERE = [NodeState.LIVE, NodeState.TERMINATING];

const addressOf = ({ group, kind, namespace, name }: ObjectRef) => `${group}/${kind}/${namespace}/${name}`;

export class Survey {
  #reading: Reading = {
    findings: [],
    wrong: 0,
    kinds: [],
    read: 0,
    estimate: 0,
    forgotten: 0,
    meta: undefined,
    isWhole: false,
  };
  #kinds = new Map<string, Counted>();
  /** The addresses of objects that exist. An owner may come before its dependents, or after them. */
  #there = new Set<string>();
  /** Places of findings by the address of an owner that has not come. */
  #awaited = new Map<string, number[]>();
  #last: Node | undefined;

  constructor(
    private readonly most = FOUND_MAX,
    private readonly names = NAMES_MAX,
  ) {}

  take(part: ExportGraphResponse["part"]): void {
    const reading = this.#reading;
    if (part.case === "header") {
      reading.meta = part.value.meta;
      reading.estimate = Number(part.value.nodeEstimate);
    } else if (part.case === "footer") reading.isWhole = true;
    else if (part.case === "chunk") {
      const { nodes, edges } = part.value;
      for (const node of nodes) this.#count(node);
      const known = new Map(nodes.map((node) => [node.ref!.uid, node]));
      // The references of the last object of a chunk may continue in the next one.
      if (this.#last) known.set(this.#last.ref!.uid, this.#last);
      for (const edge of edges) {
        const node = known.get(edge.dependentUid);
        if (node && !FINE.includes(edge.standing)) this.#find(node, edge);
      }
      this.#last = nodes.at(-1) ?? this.#last;
    }
  }

  /** A copy that does not change. */
  get reading(): Reading {
    const kinds = [...this.#kinds.values()].map((counted) => ({ ...counted }));
    kinds.sort((a, b) => (a.kind < b.kind ? -1 : 1));
    return { ...this.#reading, findings: [...this.#reading.findings], kinds };
  }

  #count(node: Node): void {
    const reading = this.#reading;
    reading.read += 1;
    if (!THERE.includes(node.state)) return;
    const { group, kind } = node.ref!;
    const name = group ? `${kind}.${group}` : kind;
    const counted = this.#kinds.get(name) ?? { kind: name, objects: 0, unowned: 0 };
    this.#kinds.set(name, counted);
    counted.objects += 1;
    if (node.ownerReferences.length === 0) counted.unowned += 1;
    const address = addressOf(node.ref!);
    if (this.#there.size < this.names) this.#there.add(address);
    else reading.forgotten += 1;
    const { findings } = reading;
    for (const place of this.#awaited.get(address) ?? []) findings[place] = { ...findings[place]!, isLost: true };
    this.#awaited.delete(address);
  }

  #find(node: Node, edge: Edge): void {
    const { findings } = this.#reading;
    this.#reading.wrong += 1;
    if (findings.length >= this.most) return;
    const address = edge.standing === OwnerStanding.DANGLING && edge.owner ? addressOf(edge.owner) : undefined;
    const isLost = address !== undefined && this.#there.has(address);
    findings.push({ node, edge, isLost });
    if (address === undefined || isLost) return;
    const places = this.#awaited.get(address);
    if (places) places.push(findings.length - 1);
    else this.#awaited.set(address, [findings.length - 1]);
  }
}
