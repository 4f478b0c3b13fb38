import { create, toBinary } from "@bufbuild/protobuf";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { Code, ConnectError } from "@connectrpc/connect";
import { describe, expect, test } from "vitest";
import { ErrorInfoSchema } from "../src/generated/google/rpc/error_details_pb.ts";
import {
  Disagreement_Class,
  GetParityResponseSchema,
} from "../src/generated/ownergraph/decision/v1beta1/decision_service_pb.ts";
import {
  EdgeSchema,
  ExplainObjectResponseSchema,
  ListCoverageResponse_CollectionSchema,
  ListCoverageResponse_State as Coverage,
  ListOwnersResponseSchema,
  NodeSchema,
  NodeState,
  Reason_Code,
  ReasonSchema,
  Verdict,
} from "../src/generated/ownergraph/graph/v1beta1/graph_service_pb.ts";
import { ObjectRefSchema } from "../src/generated/ownergraph/type/v1beta1/type_pb.ts";
import { BackendError, isToken } from "../src/lib/backend.ts";
import { burnDown, heat, pace, rate } from "../src/lib/burn.ts";
import { byType, choosing, command, kubectl, naming, quoted, scoped, viewing } from "../src/lib/commands.ts";
import { lagsOf } from "../src/lib/coverage.ts";
import { newest, ticks } from "../src/lib/plot.ts";
import { problem } from "../src/lib/problem.ts";
import { changed, pageOf, refOf, scopeFilter } from "../src/lib/query.ts";
import { admitting, candidates, parseSearch } from "../src/lib/search.ts";
import { csv, tsv } from "../src/lib/table.ts";
import { parseSpan, span } from "../src/lib/time.ts";
import { guardOf, nextStep, ownerGaps, ownersLeft, reasonWords } from "../src/lib/why.ts";
import { agreement, kstatus, pattern, shown, stateOf, unexplained, visible } from "../src/lib/words.ts";
import { yaml } from "../src/lib/yaml.ts";

function serviceError(code: Code, reason: string, metadata: Record<string, string> = {}): ConnectError {
  const error = new ConnectError("words of the service", code);
  const value = toBinary(ErrorInfoSchema, create(ErrorInfoSchema, { reason, domain: "ownergraph.dev", metadata }));
  error.details.push({ type: ErrorInfoSchema.typeName, value });
  return error;
}

describe("time", () => {
  test("spans", () => {
    expect([400, 12_000, 200_000, 3_600_000, 41 * 86_400_000, -5].map(span)).toEqual([
      "0.4 s",
      "12 s",
      "3 m 20 s",
      "1 h",
      "41 d",
      "0.0 s",
    ]);
    expect(["90s", "1h30m", "2d", "5", "5x", "", "99999999d", `${"9".repeat(400)}s`].map(parseSpan)).toEqual([
      90_000,
      5_400_000,
      172_800_000,
      undefined,
      undefined,
      undefined,
      undefined,
      undefined,
    ]);
  });
});

describe("query", () => {
  test("an unknown page is the overview", () => expect(pageOf(new URLSearchParams("page=x"))).toBe("overview"));
  test("empty values leave", () => {
    expect(changed(new URLSearchParams("a=1&b=2"), { a: "", c: "3" }).toString()).toBe("b=2&c=3");
  });
  test("an address without a name and a uid names nothing", () => {
    expect(refOf(new URLSearchParams("kind=Pod"))).toBeUndefined();
  });
  test("a scope names its namespaces in a filter", () => {
    expect(scopeFilter(new URLSearchParams("in=a,b"))).toEqual([{ namespaces: ["a", "b"] }]);
    expect(scopeFilter(new URLSearchParams())).toEqual([]);
  });
});

describe("search", () => {
  const served = [
    ["", "pods"],
    ["", "nodes"],
    ["", "events"],
    ["apps", "deployments"],
    ["apps", "statefulsets"],
    ["events.k8s.io", "events"],
    ["example.com", "databases"],
    ["metrics.k8s.io", "pods"],
    ["networking.k8s.io", "ingresses"],
    ["networking.k8s.io", "networkpolicies"],
  ].map(([group, resource]) => ({ group: group!, resource: resource! }));
  const meant = (typed: string, namespaces: string[] = []) => {
    const search = parseSearch(typed);
    if (!search || "text" in search) return search;
    return candidates(search, search.namespace ? [search.namespace] : namespaces, served);
  };
  test.each([
    ["deploy/web -n shop", { group: "apps", resource: "deployments", namespace: "shop", name: "web" }],
    ["deploy web", { group: "apps", resource: "deployments", namespace: "", name: "web" }],
    ["statefulsets/db -n shop", { group: "apps", resource: "statefulsets", namespace: "shop", name: "db" }],
    ["StatefulSet/db", { group: "apps", resource: "statefulsets", name: "db" }],
    ["sts.apps/db", { group: "apps", resource: "statefulsets", name: "db" }],
    ["netpol/deny", { group: "networking.k8s.io", resource: "networkpolicies", name: "deny" }],
    ["NetworkPolicy/deny", { group: "networking.k8s.io", resource: "networkpolicies", name: "deny" }],
    ["ingress/web", { group: "networking.k8s.io", resource: "ingresses", name: "web" }],
    ["pods/a", { group: "", resource: "pods", name: "a" }],
    ["events/e", { group: "", resource: "events", name: "e" }],
    ["databases.example.com/orders", { group: "example.com", resource: "databases", name: "orders" }],
    ["Database/orders", { group: "example.com", resource: "databases", name: "orders" }],
    ["Shard.example.com/one", { group: "example.com", kind: "Shard", name: "one" }],
    ["00000000-0000-4000-8000-000000000001", { uid: "00000000-0000-4000-8000-000000000001" }],
  ])("%s", (typed, ref) => expect(meant(typed)).toMatchObject([ref]));
  test("each namespace of the scope is a place, unless the kind has none", () => {
    const places = (typed: string) => meant(typed, ["a", "b"]) as { namespace: string }[];
    expect(places("pod/a").map(({ namespace }) => namespace)).toEqual(["a", "b"]);
    expect(places("pod/a -n c").map(({ namespace }) => namespace)).toEqual(["c"]);
    expect(places("node/n1").map(({ namespace }) => namespace)).toEqual([""]);
  });
  test("a kind that the cluster does not serve means nothing", () => expect(meant("nonsense/a")).toEqual([]));
  test("who may not list the kinds of the cluster learns the kind from the objects that are meant", () => {
    expect(admitting({ type: "deploy", name: "web" }, ["shop"])).toEqual({
      cel: `object.name == "web" && (${["deployments", "deploy", "deploys", "deployes", "deploies"]
        .map((one) => `object.resource == "${one}"`)
        .join(" || ")})`,
      namespaces: ["shop"],
    });
    expect(admitting({ type: "Shard.example.com", name: "one" }, []).cel).toMatch(/ && object.group == "example.com"$/);
    expect(admitting({ type: "node", name: "n1" }, ["shop"]).namespaces).toEqual([]);
  });
  test("anything else is a part of a name", () => {
    expect(meant("web -n shop")).toEqual({ text: "web", namespace: "shop" });
    expect(parseSearch("  ")).toBeUndefined();
  });
});

describe("commands", () => {
  const ref = { group: "apps", resource: "deployments", kind: "Deployment", namespace: "shop", name: "web" };
  test("an object", () => {
    expect(command("prod", "tree", ...naming(ref))).toBe(
      "kubectl ownergraph --context prod tree deployments.apps/web -n shop",
    );
    expect(byType({ ...ref, group: "", resource: "" })).toBe("Deployment/web");
  });
  test("a command takes one namespace at a time", () => {
    expect(scoped(undefined, "a,b", "stuck")).toBe("kubectl ownergraph stuck -n a; kubectl ownergraph stuck -n b");
    expect(scoped(undefined, "", "stuck")).toBe("kubectl ownergraph stuck -A");
  });
  test("choices of decisions are spelled as the command does", () => {
    expect(choosing("verdict", ["CONFIRMED", "HELD"])).toBe("--verdict=gone,held");
    expect(choosing("cause", ["OWNERS_GONE"])).toBe("--cause=owners-gone");
    expect(choosing("action", [])).toBeUndefined();
  });
  test("each view of an object has the command that shows the same", () => {
    const object = create(ObjectRefSchema, { ...ref, uid: "u" });
    const of = (view: string, query = "") => viewing(undefined, object, view, undefined, new URLSearchParams(query));
    const tree = "kubectl ownergraph tree deployments.apps/web -n shop";
    expect(of("graph")).toBe(tree);
    expect(of("tree", "kinds=Pod,Secret&fold=no")).toBe(`${tree} --kinds=Pod,Secret --no-fold`);
    expect(viewing(undefined, object, "table", 2, new URLSearchParams())).toBe(`${tree} --depth=2 -o table`);
    expect(of("timeline")).toBe(
      `kubectl ownergraph decisions --since=0s '--cel=event.target.uid == "u" || event.root.uid == "u" || ` +
        `event.cause_chain.exists(owner, owner.uid == "u")' -n shop`,
    );
    const namespace = create(ObjectRefSchema, { kind: "Namespace", name: "shop" });
    expect(viewing(undefined, namespace, "table", undefined, new URLSearchParams())).toBe(
      "kubectl ownergraph export -o name -n shop",
    );
  });
  test("a control is written out, and no terminal obeys it", () => {
    expect(quoted("a\n'\u001bb")).toBe("$'a\\x0a\\'\\x1bb'");
  });
  test("kubectl reads the object in the same cluster", () => {
    expect(kubectl("prod", "get", ...naming(ref))).toBe("kubectl --context prod get deployments.apps/web -n shop");
  });
  test("a word with a quote stays one word", () => expect(quoted("it's $HOME")).toBe(`'it'\\''s $HOME'`));
});

describe("words", () => {
  test.each([
    ["web-7f9c-2xk8q", "web-*"],
    ["orders-12", "orders-*"],
    ["web-settings", "web-settings"],
    ["api-key", "api-key"],
    ["entry-00012", "entry-*"],
  ])("the pattern of %s", (name, expected) => expect(pattern(name)).toBe(expected));
  test("invisible characters of a name are shown", () => {
    expect(visible("a\u202eb\n<b>")).toBe("a\\u{202e}b\\u{000a}<b>");
    expect(shown(create(ObjectRefSchema, { kind: "Pod", name: "a\u200bb" }))).toBe("Pod a\\u{200b}b");
  });
  test("states have a word and a tone", () => {
    expect(
      stateOf(
        create(NodeSchema, { state: NodeState.TERMINATING, deletingDependents: true, blockingDependentCount: 2 }),
      ),
    ).toEqual({ word: "blocked(2)", tone: "bad" });
    expect(stateOf(create(NodeSchema, { state: NodeState.LIVE }))).toEqual({ word: "current", tone: "ok" });
  });
  test("each word of kstatus has its tone", () => {
    const words = ["Current", "InProgress", "Failed", "Terminating", "Unknown", "NotFound"] as const;
    expect(words.map((word) => kstatus(word).tone)).toEqual(["ok", "wait", "bad", "bad", "none", "none"]);
    expect(kstatus("InProgress").word).toBe("InProgress");
  });
  test("reasons name objects and the number of the others", () => {
    const related = ["a", "b", "c", "d"].map((name) => ({ kind: "Pod", namespace: "shop", name }));
    const reason = create(ReasonSchema, {
      code: Reason_Code.BLOCKING_DEPENDENTS,
      related: related as never,
      relatedCount: 12n,
    });
    expect(reasonWords(reason)).toBe("Pod shop/a, Pod shop/b, Pod shop/c and 9 more have to be deleted first");
  });
  test("a reason names its guard, unless the guards cannot be read", () => {
    const of = (detail: string) => guardOf(create(ReasonSchema, { code: Reason_Code.PROTECTED, detail }));
    expect(of("protections/keys: keys stay")).toBe("protections/keys");
    expect(of("the protections cannot be read")).toBeUndefined();
  });
  test("owners that the page leaves out are counted", () => {
    const owners = (length: number) => Array.from({ length }, () => create(EdgeSchema));
    const left = (ownerCount: number, length: number) =>
      ownersLeft(create(ExplainObjectResponseSchema, { node: { ownerCount }, owners: owners(length) }));
    expect([left(20, 20), left(25, 25), left(300, 100), left(3, 0)]).toEqual([0, 5, 280, 0]);
    const gaps = (more: object) => ownerGaps(create(ListOwnersResponseSchema, more));
    expect(gaps({})).toEqual([]);
    expect(gaps({ owners: owners(2).map(() => ({})), nextPageToken: "t", redactedCount: 1 })).toEqual([
      "There are more owners than the 2 that the page reads.",
      "You may not see 1 more owner.",
    ]);
  });
  test("each reason of a stuck object has a next step", () => {
    for (const code of [
      Reason_Code.FINALIZER_PRESENT,
      Reason_Code.FORBIDDEN,
      Reason_Code.ADMISSION_DENIED,
      Reason_Code.PAUSED,
    ])
      expect(nextStep(Verdict.BLOCKED, undefined, create(ReasonSchema, { code }))).not.toBe("");
  });
});

test.each([
  ["eyJhbGciOi.JSUzI1-NiIsI_m==", true],
  ["a token", false],
  ["a\u200btoken", false],
  ["a\u2013token", false],
  ["", false],
])("a header can carry “%s”: %s", (text, expected) => expect(isToken(text)).toBe(expected));

describe("problems", () => {
  test("a missing right names what to ask for", () => {
    const wrong = problem(
      serviceError(Code.PermissionDenied, "ACCESS_DENIED", { verb: "list", resource: "graphobjects", namespace: "" }),
    );
    expect(wrong.words).toBe("You may not list graphobjects in all namespaces.");
    expect(wrong.next).toContain("Choose a namespace");
    expect([wrong.retry, wrong.denied]).toEqual([false, true]);
  });
  test.each([
    ["decisions", "shop", "Ask for the role ownergraph-view in that namespace."],
    ["status", "", "Ask for the role ownergraph-operate, by a ClusterRoleBinding."],
    ["collections", "", "Ask for the role ownergraph-operate, by a ClusterRoleBinding."],
    ["configmaps", "shop", "Ask for this right."],
  ])("a missing right about %s names the role that has it", (resource, namespace, next) => {
    const error = serviceError(Code.PermissionDenied, "ACCESS_DENIED", { verb: "get", resource, namespace });
    expect(problem(error).next).toBe(next);
  });
  test("a detail that cannot be read leaves the words of the service", () => {
    const error = new ConnectError("words of the service", Code.Unavailable);
    error.details.push({ type: ErrorInfoSchema.typeName, value: new Uint8Array([0xff]) });
    expect(problem(error).words).toContain("words of the service");
  });
  test("a change of leader is temporary", () => {
    expect(problem(serviceError(Code.Unavailable, "NOT_LEADER", { leader: "pod-1" }))).toEqual({
      words: "This replica does not lead; pod-1 does.",
      next: "",
      retry: true,
    });
  });
  test("a token that the back end refuses ends the tries", () => {
    expect(problem(new ConnectError("", Code.Unauthenticated)).retry).toBe(false);
    expect(problem(new BackendError("", 401)).words).toContain("not valid any more");
  });
  test("a back end that cannot answer now is asked again, and one that refuses is not", () => {
    expect([0, 429, 502, 403, 400].map((status) => problem(new BackendError("", status)).retry)).toEqual([
      true,
      true,
      true,
      false,
      false,
    ]);
  });
});

describe("plots", () => {
  test("ticks are round", () => expect(ticks(0, 97, 4)).toEqual([0, 50]));
  test("a table has the newest points of each series", () => {
    const series = (name: string) => ({
      name,
      colour: "ok",
      points: [0, 1, 2, 3].map((at): [number, number] => [at, at]),
    });
    const times = (most: number) =>
      newest([series("a"), series("b")], most).map(({ points }) => points.map(([at]) => at));
    expect(times(4)).toEqual([
      [2, 3],
      [2, 3],
    ]);
    expect(times(1)).toEqual([[3]]);
    expect(times(100)[1]).toEqual([0, 1, 2, 3]);
  });
  test("a cell that a spreadsheet would run is a text", () => {
    expect(csv([["a,b", '"', "=1+1", -2]])).toBe(`"a,b","""",'=1+1,-2\r\n`);
    expect(tsv([["a\tb", "a,b", "-1+1", "-"]])).toBe(`"a\tb"\ta,b\t'-1+1\t-\r\n`);
  });
  test("the rate counts each event once", () => {
    const points = rate([500, 1500, 1600], 10_000, 1000, 10);
    expect(points.reduce((sum, [, value]) => sum + value, 0)).toBe(3);
  });
  test("the newest bin of a rate is whole", () => {
    const steady = Array.from({ length: 601 }, (_, at) => at * 100);
    expect(
      rate(steady, 60_050, 10_000)
        .slice(1)
        .map(([, value]) => value),
    ).toEqual([10, 10, 10, 10, 10, 10]);
  });
  test("the burn-down begins with all objects and ends with those that are left", () => {
    expect(burnDown(3, [100, 200], 300, 50)).toEqual([
      [50, 5],
      [100, 4],
      [200, 3],
      [300, 3],
    ]);
  });
  test("the burn-down of a large cascade has few points, and begins with those that the page does not remember", () => {
    const gone = Array.from({ length: 75_000 }, (_, at) => 1000 + at);
    const points = burnDown(5, gone, 80_000, 0, 25_000);
    expect(points.length).toBeLessThan(610);
    expect([points[0], points.at(-1)]).toEqual([[0, 100_005], [80_000, 5]]); // prettier-ignore
    const falling = [...points].sort(([a, left], [b, right]) => a - b || right - left);
    expect(points).toEqual(falling);
    expect(points.map(([, left]) => left)).toEqual(points.map(([, left]) => left).sort((a, b) => b - a));
  });
  test("without progress there is no estimate", () => {
    expect(pace(10, [0], 120_000)).toEqual({ perSecond: 0, eta: undefined });
    expect(pace(10, [5000, 10_000], 20_000).eta).toBe(75_000);
  });
  test("delays fall in their row", () => {
    const { cells, rows } = heat(
      [
        { at: 59_000, took: 3000 },
        { at: 59_000, took: undefined },
      ],
      60_000,
    );
    expect(rows[1]).toBe("≤ 5 s");
    expect(cells.flat().reduce((sum, value) => sum + value, 0)).toBe(1);
    expect(Math.max(...cells[1]!)).toBe(1);
  });
});

test("collections that are not synced come first, and ignored ones not at all", () => {
  const of = (resource: string, state: keyof typeof Coverage, seconds?: number) =>
    create(ListCoverageResponse_CollectionSchema, {
      groupResource: { resource },
      state: Coverage[state],
      ...(seconds === undefined ? {} : { progressTime: timestampFromMs(1e9 - seconds * 1000) }),
    });
  const lags = lagsOf(
    [
      of("ok", "SYNCED", 2),
      of("old", "SYNCED", 100),
      of("out", "IGNORED"),
      of("new", "LISTING"),
      of("lost", "STALE", 5),
      of("bad", "FAILED"),
    ],
    1e9,
  );
  expect(lags.map(({ name, state, seconds }) => [name, state.word, state.tone, seconds])).toEqual([
    ["bad", "failed", "bad", undefined],
    ["lost", "stale", "bad", 5],
    ["new", "listing", "wait", undefined],
    ["old", "late", "bad", 100],
    ["ok", "synced", "ok", 2],
  ]);
});

test("YAML quotes what has a meaning of its own", () => {
  const node = create(NodeSchema, {
    ref: { group: "apps", version: "v1", kind: "Deployment", name: "web", namespace: "on", uid: "u" } as never,
    annotations: { note: "a: b\n<b>", hidden: "a\u202eb" },
    deleteTime: timestampFromMs(0),
  });
  const text = yaml(node);
  expect(text).toContain("apiVersion: apps/v1\n");
  expect(text).toContain('namespace: "on"');
  expect(text).toContain('note: "a: b\\n<b>"');
  expect(text).toContain('hidden: "a\\u202eb"');
});

test("the agreed share is rounded down, and counts where the other collector was first", () => {
  const share = (agreed: bigint, theirsFirst: bigint, comparable: bigint) =>
    agreement({ agreed, theirsFirst, comparable });
  expect(share(50n, 50n, 100n)).toEqual([100n, "100.00 %"]);
  expect(share(49_998n, 0n, 50_000n)).toEqual([49_998n, "99.99 %"]);
  expect(share(99_996n, 0n, 100_000n)[1]).toBe("99.99 %");
  expect(share(0n, 0n, 0n)).toEqual([0n, "-"]);
});

test("unknown disagreements beyond those of the collections are of earlier leaders", () => {
  const of = (all: bigint, ofTerm: bigint[]) =>
    unexplained(
      create(GetParityResponseSchema, {
        classes: [
          { class: Disagreement_Class.UNKNOWN, oursOnly: all, theirsOnly: 1n },
          { class: Disagreement_Class.TIMING, oursOnly: 9n },
        ],
        collections: ofTerm.map((unknown) => ({ unknown })),
      }),
    );
  expect(of(2n, [1n, 1n])).toEqual([3n, 1n]);
  expect(of(2n, [])).toEqual([3n, 3n]);
  expect(of(2n, [5n]), "the numbers of a window are less than those of the term").toEqual([3n, 0n]);
});
