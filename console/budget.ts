// How much JavaScript the first page may need.

import { gzipSync } from "node:zlib";
import type { Plugin, Rollup } from "vite";

/** Compressed bytes. */
export const BUDGET = 250_000;
/** The page that an address without a query shows, which loads by itself. */
const FIRST = /pages\/Overview\.svelte$/;

export interface Chunk {
  code: string;
  imports: string[];
  isEntry: boolean;
  facadeModuleId: string | null;
}

/** The compressed bytes of all chunks that the first page imports. */
export function firstLoad(chunks: Record<string, Chunk>): number {
  const todo = Object.keys(chunks).filter((name) => {
    const { isEntry, facadeModuleId } = chunks[name]!;
    return isEntry || FIRST.test(facadeModuleId ?? "");
  });
  const needed = new Set<string>();
  for (let name = todo.pop(); name !== undefined; name = todo.pop()) {
    const chunk = chunks[name];
    if (!chunk || needed.has(name)) continue;
    needed.add(name);
    todo.push(...chunk.imports);
  }
  return [...needed].reduce((sum, name) => sum + gzipSync(chunks[name]!.code).length, 0);
}

export const budget: Plugin = {
  name: "budget",
  apply: "build",
  generateBundle(_, bundle) {
    const chunks = Object.fromEntries(
      Object.entries(bundle).filter((pair): pair is [string, Rollup.OutputChunk] => pair[1].type === "chunk"),
    );
    const bytes = firstLoad(chunks);
    const words = `the first page needs ${(bytes / 1000).toFixed(1)} kB of compressed JavaScript, of ${BUDGET / 1000} kB`;
    if (bytes > BUDGET) this.error(words);
    console.log(words);
  },
};
