import { create } from "@bufbuild/protobuf";
import { describe, expect, test } from "vitest";
import { Cluster } from "../mock/cluster.ts";
import {
  Collecting,
  EdgeSchema,
  NodeSchema,
  NodeState,
  OwnerStanding,
} from "../src/generated/ownergraph/graph/v1beta1/graph_service_pb.ts";
import { draw, label } from "../src/lib/picture.ts";
import { buildTree, edgeClass, Item, level, limitFor, openLevels, rowsOf, withAncestors } from "../src/lib/tree.ts";

function item(name: string, depth: number, owner = "", more = {}): Item {
  const ref = { kind: "Pod", namespace: "shop", name, uid: name };
  const edges = owner
    ? [create(EdgeSchema, { ownerUid: owner, dependentUid: name, standing: OwnerStanding.SOLID })]
    : [];
  return new Item(name, create(NodeSchema, { ref, state: NodeState.LIVE, ...more } as never), depth, edges);
}
const closed = { byDefault: () => true, toggled: new Set<string>(), fold: true };

function archive(): { root: Item; below: Item[] } {
  const cluster = new Cluster();
  const entry = [...cluster.entries.values()].find(({ node }) => node.ref!.name === "everything")!;
  const root = new Item(entry.node.ref!.uid, entry.node, 0, entry.edges);
  const below = cluster
    .below(root.uid)
    .map(({ entry: { node, edges }, depth }) => new Item(node.ref!.uid, node, depth, edges));
  return { root, below };
}

describe("tree", () => {
  test("an object stands under its controller", () => {
    const both = item("c", 2, "a");
    both.edges.push(create(EdgeSchema, { ownerUid: "b", dependentUid: "c", reference: { controller: true } }));
    const tree = buildTree(item("root", 0), [item("a", 1, "root"), item("b", 1, "root"), both]);
    expect(tree.parent.get("c")).toBe("b");
  });
  test("objects that own each other make no circle", () => {
    const a = item("a", 1, "root");
    a.edges.push(create(EdgeSchema, { ownerUid: "b", dependentUid: "a", reference: { controller: true } }));
    const tree = buildTree(item("root", 0), [a, item("b", 2, "a")]);
    expect(rowsOf(tree, closed).map(({ id }) => id)).toEqual(["root", "a", "b"]);
  });
  test("an object whose owner is not there yet stands under the root", () => {
    expect(buildTree(item("root", 0), [item("a", 3, "unseen")]).parent.get("a")).toBe("root");
  });
  test("siblings fold if they and all below them are alike", () => {
    const pods = Array.from({ length: 8 }, (_, at) => item(`web-${at}`, 1, "root"));
    const claims = pods.slice(1).map(({ uid }) => item(`data-${uid}`, 2, uid));
    const tree = buildTree(item("root", 0), [...pods, ...claims]);
    const rows = rowsOf(tree, closed);
    expect(rows.map(({ item, members }) => [item.uid, members.length])).toEqual([
      ["root", 0],
      ["web-0", 0],
      ["web-1", 7],
    ]);
    const open = rowsOf(tree, { ...closed, toggled: new Set([rows[2]!.id]) });
    expect(open).toHaveLength(3 + 7 * 2);
    expect(open.at(-1)).toMatchObject({ level: 4, position: 1, siblings: 1 });
  });
  test("an open fold stays open when its first member goes", () => {
    const pods = Array.from({ length: 8 }, (_, at) => item(`web-${at}`, 1, "root"));
    const fold = (below: Item[]) => rowsOf(buildTree(item("root", 0), below), closed)[1]!;
    expect(fold(pods).members).toHaveLength(8);
    expect(fold(pods.slice(1)).id).toBe(fold(pods).id);
  });
  test("objects of a namespace get their depths from each other", () => {
    const items = [item("pod", 0, "set"), item("set", 0, "web"), item("web", 0), item("a", 0, "b"), item("b", 0, "a")];
    const depths = new Map(level(items).map(({ uid, depth }) => [uid, depth]));
    expect(depths).toEqual(new Map(Object.entries({ web: 1, set: 2, pod: 3, a: 1, b: 2 })));
    expect(rowsOf(buildTree(item("root", 0), level(items)), closed).map(({ id, level }) => [id, level])).toEqual([
      ["root", 1],
      ["a", 2],
      ["b", 3],
      ["web", 2],
      ["set", 3],
      ["pod", 4],
    ]);
    expect(level(items)[0]).toBe(level(items)[0]);
  });
  test("references that name one owner twice make no copies", () => {
    const twice = (name: string, owner: string) => {
      const made = item(name, 0, owner);
      made.edges.push(made.edges[0]!);
      return made;
    };
    const chain = Array.from({ length: 40 }, (_, at) => twice(`${at + 1}`, `${at}`));
    expect(level([item("0", 0), ...chain]).map(({ depth }) => depth)).toEqual(chain.map((_, at) => at + 1).concat(41));
  });
  test("a filter keeps the owners of what matches, and counts the rest", () => {
    const tree = buildTree(item("root", 0), [item("a", 1, "root"), item("b", 2, "a"), item("c", 1, "root")]);
    const { kept, hidden } = withAncestors(tree, ({ uid }) => uid === "b");
    expect([...kept].sort()).toEqual(["a", "b", "root"]);
    expect(hidden).toBe(1);
  });
  test("a reader who closes all closes also what a filter opens", () => {
    expect(["", "all", "none"].map((asked) => openLevels(asked, true, 10))).toEqual([Infinity, Infinity, 1]);
    expect(["", "all", "none"].map((asked) => openLevels(asked, false, 10_000))).toEqual([2, Infinity, 1]);
  });
  test("a dangling reference is drawn as such whatever it says", () => {
    const edge = { standing: OwnerStanding.DANGLING, reference: { controller: true, blockOwnerDeletion: true } };
    expect(edgeClass(create(EdgeSchema, edge))).toBe("dangling");
  });
});

describe("picture", () => {
  const some = (count: number, more: (at: number) => object = () => ({})) =>
    Array.from({ length: count }, (_, at) => item(`web-${at}`, 1, "root", more(at)));
  const folds = (below: Item[], by: string, limit?: number) => {
    const tree = buildTree(item("root", 0), below);
    const [, ...boxes] = draw(tree, [], { fold: true, by }, limit).boxes;
    return boxes.map((box) => ({ ...box, label: label(tree, box, by) }));
  };
  test("a box of several has the worst state of all, and selects the object that has it", () => {
    const one = some(12, (at) => (at === 7 ? { state: NodeState.TERMINATING } : {}));
    for (const by of ["kind", "namespace"]) {
      const [fold] = folds(one, by);
      expect(fold).toMatchObject({ id: "web-0", state: { word: "1 of 12 deleting", tone: "bad" } });
      expect([fold!.item.uid, fold!.weight]).toEqual(["web-7", one[7]!.weight]);
    }
    const blocked = (at: number) => ({
      state: NodeState.TERMINATING,
      deletingDependents: true,
      blockingDependentCount: 1 + (at % 2),
    });
    expect(folds(some(8, blocked), "kind")[0]!.state.word).toBe("blocked");
  });
  test("a box of several has the worst state of what is below them", () => {
    const gone = some(8).map(({ uid }) => item(`pod-of-${uid}`, 2, uid, { state: NodeState.TERMINATING }));
    const [fold, ...others] = folds([...some(8), ...gone], "");
    expect(fold).toMatchObject({ label: "8 × Pod web-*, 8 below", state: { word: "8 of 16 deleting", tone: "bad" } });
    expect(others).toEqual([]);
  });
  test("a box of several says what they have in common", () => {
    const mixed = some(12, (at) => ({
      ref: { kind: at % 2 ? "Pod" : "Secret", namespace: at < 6 ? "shop" : "", name: `a-${at}`, uid: `web-${at}` },
      collecting: at % 2 ? Collecting.HELD : Collecting.UNSPECIFIED,
    }));
    const labels = (by: string) =>
      folds(mixed, by)
        .map(({ label }) => label)
        .sort();
    expect(labels("kind")).toEqual(["6 × Pod", "6 × Secret"]);
    expect(labels("namespace")).toEqual(["6 objects in shop", "6 objects without a namespace"]);
    expect(labels("state")).toEqual(["6 × Pod, held", "6 × Secret, current"]);
  });
  test("a cut picture keeps a box of many with one error before one without", () => {
    const two = some(12, (at) => ({
      ref: { kind: "Pod", namespace: at < 6 ? "held" : "bad", name: `web-${at}`, uid: `web-${at}` },
      ...(at < 6 ? { collecting: Collecting.HELD } : at === 9 ? { state: NodeState.TERMINATING } : {}),
    }));
    expect(folds(two, "namespace", 2).map(({ label }) => label)).toEqual(["6 × Pod in bad"]);
  });
  test("owners that have no box are counted", () => {
    const owners = Array.from({ length: 25 }, (_, at) => item(`owner-${at}`, -1));
    const { boxes, ownersLeft } = draw(buildTree(item("a", 0, "owner-0"), []), owners, { fold: false, by: "" });
    expect([boxes.length, ownersLeft]).toEqual([21, 5]);
  });
  test("objects that own each other have one box each", () => {
    const [a, b] = [item("a", 0, "b"), item("b", 1, "a")];
    const { boxes, lines } = draw(buildTree(a, [b]), [b], { fold: false, by: "" });
    expect(boxes.map(({ id }) => id)).toEqual(["a", "b"]);
    expect(lines.map(({ extra }) => extra)).toEqual([false, true]);
  });
  test("an owner that two references name has one box", () => {
    const owner = item("owner", -1);
    const { boxes } = draw(buildTree(item("a", 0, "owner"), []), [owner, owner], { fold: false, by: "" });
    expect(boxes.map(({ id }) => id)).toEqual(["owner", "a"]);
  });
  test("the limits", () => {
    expect([1000, 1001, 10_000, 10_001].map(limitFor)).toEqual([1000, 500, 500, 300]);
  });
  test("a cut picture has what matters, and says how much", () => {
    const { root, below } = archive();
    const tree = buildTree(root, below);
    const before = performance.now();
    const picture = draw(tree, [], { fold: false, by: "" }, 500);
    console.log(`500 of ${picture.total} boxes in ${(performance.now() - before).toFixed(1)} ms`);
    expect([picture.boxes.length, picture.shown, picture.total]).toEqual([500, 500, 12_431]);
    const bad = (all: Item[]) => all.filter(({ node }) => node.state === NodeState.TERMINATING).length;
    expect(bad(picture.boxes.map(({ item }) => item))).toBe(bad(below));
    for (const box of picture.boxes)
      if (box.parent) expect(picture.boxes.some(({ id }) => id === box.parent)).toBe(true);
  });
  test("no box covers another", () => {
    const { root, below } = archive();
    const { boxes } = draw(buildTree(root, below), [], { fold: false, by: "" });
    const places = new Set(boxes.map(({ x, y }) => `${Math.round(x)} ${Math.round(y)}`));
    expect(places.size).toBe(boxes.length);
  });
  test("folds stand for all objects", () => {
    const { root, below } = archive();
    const picture = draw(buildTree(root, below), [], { fold: true, by: "" });
    expect(picture.shown).toBe(12_431);
    expect(picture.boxes.length).toBeLessThan(500);
  });
});
