// Objects below one object as a tree: pure functions for the tree table and the graph.

import { type Edge, type Node, OwnerStanding } from "../generated/ownergraph/graph/v1beta1/graph_service_pb.ts";
import { groupBy } from "./group.ts";
import { count } from "./time.ts";
import { pattern, type State, stateName, stateOf, type Tone } from "./words.ts";

/** One state of one object. What follows from it is computed once, because a tree is built with each change. */
export class Item {
  #state: State | undefined;
  #order: string | undefined;
  #likeness: string | undefined;
  #weight: number | undefined;

  constructor(
    readonly uid: string,
    readonly node: Node,
    /** 0 is the root. */
    readonly depth: number,
    readonly edges: Edge[],
  ) {}

  get state(): State {
    return (this.#state ??= stateOf(this.node));
  }

  /** By kind, namespace and name. */
  get order(): string {
    const { kind, namespace, name } = this.node.ref!;
    return (this.#order ??= `${kind}\0${namespace}\0${name}`);
  }

  /** What objects that fold have in common, apart from what is below them. */
  get likeness(): string {
    const { group, kind, namespace, name } = this.node.ref!;
    return (this.#likeness ??= `${kind}.${group}/${namespace}/${pattern(name)} ${this.state.word}`);
  }

  /** How much it matters: errors, blockers, then what is near the root, then owners of many. */
  get weight(): number {
    return (this.#weight ??= weightOf(this));
  }
}

export interface Tree {
  root: string;
  items: Map<string, Item>;
  children: Map<string, string[]>;
  parent: Map<string, string>;
}

/** Siblings that are alike fold from this number on. */
const FOLD_MIN = 6;
const NONE: string[] = [];

export function buildTree(root: Item, below: Iterable<Item>): Tree {
  const items = new Map([[root.uid, root]]);
  for (const item of below) if (item.uid !== root.uid) items.set(item.uid, item);
  const children = new Map<string, string[]>();
  const parent = new Map<string, string>();
  for (const item of items.values()) {
    if (item === root) continue;
    const owner = place(item, root, items);
    parent.set(item.uid, owner);
    const siblings = children.get(owner);
    if (siblings) siblings.push(item.uid);
    else children.set(owner, [item.uid]);
  }
  for (const siblings of children.values()) siblings.sort((a, b) => compare(items.get(a)!.order, items.get(b)!.order));
  return { root: root.uid, items, children, parent };
}

/** What was made of an item below, while its depth stays. */
const leveled = new WeakMap<Item, Item>();

/** Objects that came without depths: those without an owner among them have depth 1, and dependents one more. */
export function level(items: Item[]): Item[] {
  const known = new Map(items.map((item) => [item.uid, item]));
  const isOwned = (item: Item) => item.edges.some(({ ownerUid }) => ownerUid !== item.uid && known.has(ownerUid));
  const references = items.flatMap((item) => item.edges.map(({ ownerUid }) => ({ ownerUid, item })));
  const below = groupBy(references, ({ ownerUid }) => ownerUid);
  const found = new Map<string, Item>();
  // Of objects that own each other and have no other owner, the first one stands at the top.
  for (const top of [...items.filter((item) => !isOwned(item)), ...items]) {
    let row = [top];
    for (let depth = 1; row.length > 0; depth += 1) {
      // Two references may name one owner, and two owners one dependent: with each level, copies would double.
      row = [...new Set(row)].filter(({ uid }) => !found.has(uid));
      for (const item of row) found.set(item.uid, atDepth(item, depth));
      row = row.flatMap(({ uid }) => (below.get(uid) ?? []).map(({ item }) => item));
    }
  }
  return [...found.values()];
}
function atDepth(item: Item, depth: number): Item {
  const known = leveled.get(item);
  if (known?.depth === depth) return known;
  const made = new Item(item.uid, item.node, depth, item.edges);
  leveled.set(item, made);
  return made;
}

const compare = (a: string, b: string) => (a < b ? -1 : a > b ? 1 : 0);

/** The owner under which an object stands: its controller if that is nearer to the root, so that there is no circle. */
function place(item: Item, root: Item, items: Map<string, Item>): string {
  let found: Edge | undefined;
  for (const edge of item.edges) {
    const owner = items.get(edge.ownerUid);
    if (!owner || owner.depth >= item.depth) continue;
    if (edge.reference?.controller) return owner.uid;
    found ??= edge;
  }
  return found?.ownerUid ?? root.uid;
}

/** The reference by which an object stands under its parent. */
export function parentEdge(tree: Tree, uid: string): Edge | undefined {
  const owner = tree.parent.get(uid);
  return tree.items.get(uid)?.edges.find((edge) => edge.ownerUid === owner);
}

/** The objects that match, with all objects above them. */
export function withAncestors(tree: Tree, match: (item: Item) => boolean): { kept: Set<string>; hidden: number } {
  const kept = new Set([tree.root]);
  for (const item of tree.items.values()) {
    if (!match(item)) continue;
    for (let uid: string | undefined = item.uid; uid !== undefined && !kept.has(uid); uid = tree.parent.get(uid))
      kept.add(uid);
  }
  return { kept, hidden: tree.items.size - kept.size };
}

export interface Row {
  id: string;
  /** From 1, as in aria-level. */
  level: number;
  item: Item;
  /** Objects of a fold, of which `item` is the first; empty for a row of one object. */
  members: string[];
  expandable: boolean;
  open: boolean;
  position: number;
  siblings: number;
}

export interface Opening {
  /** Whether a row is open that the reader has not touched. */
  byDefault: (level: number) => boolean;
  /** Rows that the reader has opened or closed. */
  toggled: ReadonlySet<string>;
  fold: boolean;
  kept?: ReadonlySet<string>;
}

export interface Group {
  /** Stays while members come and go; empty for one object that stands alone. */
  key: string;
  uids: string[];
}

/** Siblings in the order of the tree. Those that are alike, with all that is below them, are one group. */
export function groups(
  tree: Tree,
  owner: string,
  fold: boolean,
  kept?: ReadonlySet<string>,
  key: (tree: Tree, uid: string) => string | number = alike,
): Group[] {
  let children = tree.children.get(owner) ?? NONE;
  if (kept) children = children.filter((uid) => kept.has(uid));
  if (!fold || children.length < FOLD_MIN) return children.map(alone);
  const keys = new Map<string, number>();
  return [...groupBy(children, (uid) => key(tree, uid)).values()].flatMap((uids) => {
    if (uids.length < FOLD_MIN) return uids.map(alone);
    // Shapes are numbered anew in each tree, and what is below changes: neither is a part of the key.
    const text = likeness(tree, uids[0]!);
    const earlier = keys.get(text) ?? 0;
    keys.set(text, earlier + 1);
    return [{ key: `${text} ${earlier}`, uids }];
  });
}
const alone = (uid: string): Group => ({ key: "", uids: [uid] });

/** Numbers of the shapes of a tree: comparing them is cheaper than comparing the texts, which contain each other. */
interface Shapes {
  byText: Map<string, number>;
  byUid: Map<string, number>;
}
const shapes = new WeakMap<Tree, Shapes>();

/** The shape of an object: its likeness, its reference, and the shapes of what is below it. */
function alike(tree: Tree, uid: string): number {
  let known = shapes.get(tree);
  if (!known) shapes.set(tree, (known = { byText: new Map(), byUid: new Map() }));
  const found = known.byUid.get(uid);
  if (found !== undefined) return found;
  const below = groupBy(tree.children.get(uid) ?? NONE, (child) => alike(tree, child));
  const words = [...below].map(([child, all]) => `${all.length}×${child}`).sort();
  const text = `${likeness(tree, uid)} ${words}`;
  const shape = known.byText.get(text) ?? known.byText.size;
  known.byText.set(text, shape);
  known.byUid.set(uid, shape);
  return shape;
}

const likeness = (tree: Tree, uid: string) => `${tree.items.get(uid)!.likeness} ${edgeClass(parentEdge(tree, uid))}`;

/** The objects below these. */
export function allBelow(tree: Tree, uids: string[], kept?: ReadonlySet<string>): Item[] {
  const found: Item[] = [];
  const todo = [...uids];
  for (let uid = todo.pop(); uid !== undefined; uid = todo.pop()) {
    for (const child of tree.children.get(uid) ?? NONE) {
      if (kept && !kept.has(child)) continue;
      found.push(tree.items.get(child)!);
      todo.push(child);
    }
  }
  return found;
}

/** The worst state of objects. Where they differ, it says how many have it: `2 of 12 blocked`. */
export function worst(items: Item[]): State {
  const { state } = items.reduce((bad, item) => (WEIGHT[item.state.tone] > WEIGHT[bad.state.tone] ? item : bad));
  if (items.every((item) => item.state.word === state.word)) return state;
  const name = stateName(state);
  const having = items.filter((item) => stateName(item.state) === name).length;
  return { ...state, word: having === items.length ? name : `${count(having)} of ${count(items.length)} ${name}` };
}

/** Keys of groups that the reader can choose in place of "alike". */
export const GROUPINGS: Record<string, (tree: Tree, uid: string) => string> = {
  kind: (tree, uid) => tree.items.get(uid)!.node.ref!.kind,
  namespace: (tree, uid) => tree.items.get(uid)!.node.ref!.namespace,
  state: (tree, uid) => stateName(tree.items.get(uid)!.state),
};

/** A small tree is open. */
const SMALL = 200;
const OPEN_LEVELS = 2;
/** The last level that is open unless the reader has touched its rows. What the reader asks for overrides a filter. */
export function openLevels(asked: string, isFiltered: boolean, objects: number): number {
  if (asked === "none") return 1;
  return asked === "all" || isFiltered || objects <= SMALL ? Infinity : OPEN_LEVELS;
}

export function rowsOf(tree: Tree, opening: Opening): Row[] {
  const rows: Row[] = [];
  const isOpen = (id: string, level: number, initially = opening.byDefault(level)) =>
    initially !== opening.toggled.has(id);
  const visit = (uid: string, level: number, position: number, siblings: number) => {
    const item = tree.items.get(uid)!;
    const below = groups(tree, uid, opening.fold, opening.kept);
    const expandable = below.length > 0;
    const open = expandable && isOpen(uid, level);
    rows.push({ id: uid, level, item, members: [], expandable, open, position, siblings });
    if (!open) return;
    below.forEach(({ key, uids: group }, index) => {
      if (group.length === 1) return visit(group[0]!, level + 1, index + 1, below.length);
      const id = `~${uid} ${key}`;
      const first = tree.items.get(group[0]!)!;
      const unfolded = isOpen(id, level + 1, false);
      rows.push({
        id,
        level: level + 1,
        item: first,
        members: group,
        expandable: true,
        open: unfolded,
        position: index + 1,
        siblings: below.length,
      });
      if (unfolded) group.forEach((member, at) => visit(member, level + 2, at + 1, group.length));
    });
  };
  visit(tree.root, 1, 1, 1);
  return rows;
}

export type EdgeClass = "controller" | "blocking" | "plain" | "dangling" | "unproven";

/** How a reference is drawn. The standing counts before what the reference says. */
export function edgeClass(edge: Edge | undefined): EdgeClass {
  switch (edge?.standing) {
    case OwnerStanding.DANGLING:
    case OwnerStanding.INVALID_SCOPE:
    case OwnerStanding.WRONG_NAMESPACE:
    case OwnerStanding.COORDINATES_MISMATCH:
      return "dangling";
    case OwnerStanding.UNVERIFIED:
    case OwnerStanding.KIND_UNRESOLVED:
      return "unproven";
  }
  if (edge?.reference?.blockOwnerDeletion) return "blocking";
  return edge?.reference?.controller ? "controller" : "plain";
}

const WEIGHT: Record<Tone, number> = { bad: 1000, held: 600, wait: 400, none: 200, ok: 0 };

function weightOf(item: Item): number {
  const blocks = item.edges.some(
    (edge) => edge.standing === OwnerStanding.WAITING && edge.reference?.blockOwnerDeletion,
  );
  const dangles = item.edges.some((edge) => edgeClass(edge) === "dangling");
  const near = Math.max(0, 100 - 40 * item.depth);
  return WEIGHT[item.state.tone] + (blocks || dangles ? 800 : 0) + near + Math.min(item.node.dependentCount, 30);
}

/** The number of boxes that a browser draws. */
export const limitFor = (boxes: number): number => (boxes > 10_000 ? 300 : boxes > 1000 ? 500 : boxes);
