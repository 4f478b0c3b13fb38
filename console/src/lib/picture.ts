// The picture of a tree: which boxes it has, and where they are. Loaded with the graph only.

import { groupBy } from "./group.ts";
import { count, counted } from "./time.ts";
import {
  allBelow,
  type EdgeClass,
  edgeClass,
  groups,
  GROUPINGS,
  type Item,
  limitFor,
  parentEdge,
  type Tree,
  worst,
} from "./tree.ts";
import { pattern, type State, stateName, visible } from "./words.ts";

export interface Box {
  id: string;
  /** Of siblings that are folded, the one that matters most. */
  item: Item;
  /** More than one for siblings that are folded. */
  uids: string[];
  /** Objects below a fold, which have no boxes. */
  below: number;
  /** The worst one of all objects that the box stands for, and the greatest weight. */
  state: State;
  weight: number;
  parent: string | undefined;
  x: number;
  y: number;
}

export interface Line {
  path: string;
  kind: EdgeClass;
  /** A second owner: the line is not part of the tree. */
  extra: boolean;
}

export interface Picture {
  boxes: Box[];
  lines: Line[];
  width: number;
  height: number;
  /** Objects that boxes stand for, and all objects. */
  shown: number;
  total: number;
  /** Owners that have no box. */
  ownersLeft: number;
}

export const BOX = { width: 196, height: 36 };
const GAP = { x: 56, y: 10, leaf: 14 };
/** Leaves of one owner stand in a grid from this number on: one column of hundreds of boxes is no picture. */
const GRID_MIN = 9;
const OWNERS_MAX = 20;

export interface Wish {
  fold: boolean;
  by: string;
  kept?: ReadonlySet<string>;
}

/** All boxes of a tree, owners first. */
function allBoxes(tree: Tree, wish: Wish): Box[] {
  const boxes: Box[] = [];
  const todo: { uids: string[]; parent: string | undefined }[] = [{ uids: [tree.root], parent: undefined }];
  for (let next = todo.pop(); next; next = todo.pop()) {
    const { uids, parent } = next;
    const id = uids[0]!;
    const items = uids.map((uid) => tree.items.get(uid)!);
    const below = uids.length > 1 ? allBelow(tree, uids, wish.kept) : [];
    boxes.push(boxOf(items, below, parent));
    if (uids.length > 1) continue;
    // The last one that is put is the first one that is taken.
    for (const group of groups(tree, id, wish.fold, wish.kept, GROUPINGS[wish.by]).reverse())
      todo.push({ uids: group.uids, parent: id });
  }
  return boxes;
}

const heavier = (most: Item, item: Item) => (item.weight > most.weight ? item : most);

function boxOf(items: Item[], below: Item[], parent: string | undefined, y = 0): Box {
  const item = items.reduce(heavier);
  return {
    id: items[0]!.uid,
    item,
    uids: items.map(({ uid }) => uid),
    below: below.length,
    state: worst([...items, ...below]),
    weight: below.reduce(heavier, item).weight,
    parent,
    x: 0,
    y,
  };
}

/** What a box says. The number comes first, because a long text is cut at its end. */
export function label(tree: Tree, { item, uids, below }: Box, by: string): string {
  const { kind, name } = item.node.ref!;
  if (uids.length === 1) return visible(`${kind} ${name}`);
  const isOneKind = uids.every((uid) => tree.items.get(uid)!.node.ref!.kind === kind);
  const what = isOneKind ? `${count(uids.length)} × ${kind}` : counted(uids.length, "object");
  return visible(`${what}${common(item, by)}${below > 0 ? `, ${count(below)} below` : ""}`);
}

/** What all objects of a fold have, apart from their kind. */
function common({ node, state }: Item, by: string): string {
  const { namespace, name } = node.ref!;
  switch (by) {
    case "kind":
      return "";
    case "namespace":
      return namespace ? ` in ${namespace}` : " without a namespace";
    case "state":
      return `, ${stateName(state)}`;
  }
  return ` ${pattern(name)}`;
}

/** The boxes that matter, each with the boxes above it. */
function cut(boxes: Box[], limit: number): Box[] {
  if (boxes.length <= limit) return boxes;
  const byId = new Map(boxes.map((box) => [box.id, box]));
  const kept = new Set<string>();
  for (const box of boxes.toSorted((a, b) => b.weight - a.weight)) {
    const chain: string[] = [];
    for (let at: Box | undefined = box; at && !kept.has(at.id); at = byId.get(at.parent ?? "")) chain.push(at.id);
    if (kept.size + chain.length > limit) continue;
    for (const id of chain) kept.add(id);
    if (kept.size === limit) break;
  }
  return boxes.filter((box) => kept.has(box.id));
}

export function draw(tree: Tree, owners: Item[], wish: Wish, limit?: number): Picture {
  const every = allBoxes(tree, wish);
  const boxes = cut(every, limit ?? limitFor(every.length));
  const children = new Map<string, Box[]>();
  for (const box of boxes) {
    if (box.parent === undefined) continue;
    const siblings = children.get(box.parent);
    if (siblings) siblings.push(box);
    else children.set(box.parent, [box]);
  }
  const lines: Line[] = [];
  const kindOf = (box: Box) => edgeClass(parentEdge(tree, box.item.uid));

  // Places a box and everything below it from `y` on, and returns the height that this takes.
  const place = (box: Box, level: number, y: number): number => {
    box.x = level * (BOX.width + GAP.x);
    const below = children.get(box.id) ?? [];
    const inner = below.filter((child) => children.has(child.id));
    const leaves = below.filter((child) => !children.has(child.id));
    let height = 0;
    for (const child of inner) height += place(child, level + 1, y + height) + GAP.y;
    for (const grid of grids(leaves, kindOf)) height += placeGrid(grid, box.x + BOX.width + GAP.x, y + height) + GAP.y;
    height = Math.max(BOX.height, height - GAP.y);
    box.y = y + (height - BOX.height) / 2;
    for (const child of inner)
      lines.push({ path: curve(box, child.x, child.y + BOX.height / 2), kind: kindOf(child), extra: false });
    for (const grid of grids(leaves, kindOf)) {
      const [first, last] = [grid[0]!, grid.at(-1)!];
      lines.push({ path: curve(box, first.x, (first.y + last.y + BOX.height) / 2), kind: kindOf(first), extra: false });
    }
    return height;
  };
  const root = boxes[0]!;
  // An owner that the tree also has below the root has its box there, and a line of its own.
  // Two references may name one owner.
  const known = new Map(owners.map((owner) => [owner.uid, owner]));
  const outside = [...known.values()].filter(({ uid }) => !tree.items.has(uid));
  const above = outside.slice(0, OWNERS_MAX);
  const shift = above.length > 0 ? 1 : 0;
  const below = place(root, shift, 0);
  const height = Math.max(below, above.length * (BOX.height + GAP.y) - GAP.y);
  const start = root.y + BOX.height / 2 - (above.length * (BOX.height + GAP.y) - GAP.y) / 2;
  const ownerBoxes = above.map((item, index) => boxOf([item], [], undefined, start + index * (BOX.height + GAP.y)));
  for (const box of ownerBoxes) {
    const edge = box.item.edges.find((edge) => edge.dependentUid === tree.root);
    lines.push({ path: curve(box, root.x, root.y + BOX.height / 2), kind: edgeClass(edge), extra: false });
  }
  lines.push(...extraLines(boxes));
  const all = [...ownerBoxes, ...boxes];
  const top = Math.min(...all.map((box) => box.y));
  const width = Math.max(...all.map((box) => box.x)) + BOX.width;
  return {
    boxes: all,
    lines,
    width,
    height: height - Math.min(0, top),
    shown: boxes.reduce((sum, box) => sum + box.uids.length + box.below, 0),
    total: tree.items.size,
    ownersLeft: outside.length - above.length,
  };
}

/** Leaves with the same kind of reference share a grid, and one line to it. Few leaves stand alone. */
function grids(leaves: Box[], kindOf: (box: Box) => EdgeClass): Box[][] {
  if (leaves.length < GRID_MIN) return leaves.map((leaf) => [leaf]);
  return [...groupBy(leaves, kindOf).values()];
}

function placeGrid(grid: Box[], x: number, y: number): number {
  const columns = grid.length < GRID_MIN ? 1 : Math.min(12, Math.ceil(Math.sqrt(grid.length / 5)));
  grid.forEach((box, index) => {
    box.x = x + (index % columns) * (BOX.width + GAP.leaf);
    box.y = y + Math.floor(index / columns) * (BOX.height + GAP.y);
  });
  return Math.ceil(grid.length / columns) * (BOX.height + GAP.y) - GAP.y;
}

function extraLines(boxes: Box[]): Line[] {
  const byUid = new Map(boxes.flatMap((box) => box.uids.map((uid) => [uid, box] as const)));
  const met = new Set<string>();
  const lines: Line[] = [];
  for (const box of boxes) {
    for (const edge of box.item.edges) {
      const owner = byUid.get(edge.ownerUid);
      const pair = `${owner?.id} ${box.id}`;
      if (!owner || owner.id === box.parent || owner === box || met.has(pair)) continue;
      met.add(pair);
      lines.push({ path: curve(owner, box.x, box.y + BOX.height / 2), kind: edgeClass(edge), extra: true });
    }
  }
  return lines;
}

function curve(from: Box, x: number, y: number): string {
  const [startX, startY] = [from.x + BOX.width, from.y + BOX.height / 2];
  const bend = Math.max(24, Math.abs(x - startX) / 2);
  return `M${startX} ${startY}C${startX + bend} ${startY} ${x - bend} ${y} ${x} ${y}`;
}
