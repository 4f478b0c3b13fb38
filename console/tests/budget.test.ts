import { expect, test } from "vitest";
import { type Chunk, firstLoad } from "../budget.ts";

const chunk = (code: string, imports: string[] = [], more: Partial<Chunk> = {}): Chunk => ({
  code,
  imports,
  isEntry: false,
  facadeModuleId: null,
  ...more,
});

test("the first load has the entry, the overview and what they import, each once", () => {
  const chunks = {
    entry: chunk("a".repeat(100), ["shared"], { isEntry: true }),
    overview: chunk("b".repeat(100), ["shared"], { facadeModuleId: "/console/src/pages/Overview.svelte" }),
    shared: chunk("c".repeat(100)),
    plan: chunk("d".repeat(100), [], { facadeModuleId: "/console/src/pages/Plan.svelte" }),
  };
  const each = firstLoad({ only: chunk("a".repeat(100), [], { isEntry: true }) });
  expect(each).toBeGreaterThan(0);
  expect(firstLoad(chunks)).toBe(3 * each);
});
