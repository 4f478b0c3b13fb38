import { afterEach, beforeEach, expect, test, vi } from "vitest";

/** What the page has done with the address bar. */
let done: string[] = [];
const listeners = new Map<string, () => void>();
const place = { search: "", href: "http://console" };
const to = (kind: string) => (_: null, __: string, href: string) => {
  done.push(`${kind} ${href}`);
  place.search = href;
};
vi.stubGlobal("location", place);
vi.stubGlobal("history", { pushState: to("push"), replaceState: to("replace") });
vi.stubGlobal("addEventListener", (name: string, run: () => void) => listeners.set(name, run));
vi.stubGlobal("document", { addEventListener: () => {} });
const { route } = await import("../src/lib/route.svelte.ts");

beforeEach(() => {
  vi.useFakeTimers();
  route.go("?page=object&name=web");
  done = [];
});
afterEach(() => {
  vi.runAllTimers();
  vi.useRealTimers();
});

test("the address is written when the page has had a rest, and the page has the state at once", () => {
  for (let row = 1; row <= 150; row += 1) route.set({ sel: `${row}` });
  expect(route.get("sel")).toBe("150");
  expect(done).toEqual([]);
  vi.advanceTimersByTime(200);
  expect(done).toEqual(["replace ?page=object&name=web&sel=150"]);
});
test.each([
  ["a visit", () => route.go("?page=guards"), ["push ?page=guards"]],
  ["the end of the page", () => listeners.get("pagehide")!(), []],
])("what was not written is written before %s", (_, leave, more) => {
  route.set({ sel: "a" });
  leave();
  vi.runAllTimers();
  expect(done).toEqual(["replace ?page=object&name=web&sel=a", ...more]);
});
test("what was not written when the browser goes back is not written elsewhere", () => {
  route.set({ sel: "a" });
  place.search = "?page=stuck";
  listeners.get("popstate")!();
  vi.runAllTimers();
  expect([route.page, route.get("sel"), done]).toEqual(["stuck", "", []]);
});
test.each<[string, () => void, boolean]>([
  ["a visit of the same name", () => route.go("?page=object&name=web"), true],
  ["another subject", () => route.set({ depth: "2" }), true],
  ["another scope", () => route.set({ in: "shop" }, true), true],
  ["what the page learns about its subject", () => route.adopt({ uid: "u" }), false],
  ["another view", () => route.set({ view: "tree" }), false],
  ["a fragment", () => listeners.get("popstate")!(), false],
  ["a step back", () => ((place.search = "?page=object&name=web&uid=v"), listeners.get("popstate")!()), true],
])("%s makes the page anew, or not", (_, change, isNew) => {
  const before = route.key;
  change();
  expect(route.key !== before).toBe(isNew);
});
test("a search for a name that the page has completed asks by name", () => {
  route.adopt({ uid: "u" });
  expect(route.get("uid")).toBe("u");
  const before = route.key;
  route.go("?page=object&name=web");
  expect([route.get("uid"), route.key !== before]).toEqual(["", true]);
});
