import { readFileSync } from "node:fs";
import { expect, test } from "vitest";

test("no view of k9s takes the key of a plug-in for itself", () => {
  const file = readFileSync(new URL("../k9s/plugins.yaml", import.meta.url), "utf8");
  expect(file.match(/^ {4}shortCut: Shift-\w$/gm)).toHaveLength(3);
  expect(file.match(/^ {4}shortCut: .*\n {4}override: true$/gm)).toHaveLength(3);
});
