import { svelte } from "@sveltejs/vite-plugin-svelte";
import type { Plugin } from "vite";
import { defineConfig } from "vitest/config";
import { budget } from "./budget.ts";
import { POLICY } from "./csp.ts";
import { mock } from "./mock/plugin.ts";

/** Puts the policy into the built page too, so that it holds whatever serves the files. */
const policy: Plugin = {
  name: "policy",
  apply: "build",
  transformIndexHtml: () => [
    {
      tag: "meta",
      attrs: { "http-equiv": "Content-Security-Policy", content: POLICY.join("; ") },
      injectTo: "head-prepend",
    },
  ],
};

export default defineConfig({
  plugins: [svelte(), policy, budget, mock()],
  // That of the Headlamp plug-in, of which one file is tested here, needs Headlamp's packages.
  tsconfig: "tsconfig.json",
  // An inlined asset would need `data:` in more places of the policy than images.
  build: { target: "es2023", assetsInlineLimit: 0, modulePreload: { polyfill: false } },
  test: { include: ["tests/*.test.ts"], environment: "node" },
});
