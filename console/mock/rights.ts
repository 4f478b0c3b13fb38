// The rights of the caller about guards. The tests choose a role of the chart, or single rights.

import { readFileSync } from "node:fs";

const ROLES = new URL("../../deploy/chart/templates/callers.yaml", import.meta.url);

/** `VERB RESOURCE` of each rule of the role `ownergraph-NAME`. */
function role(name: string): string[] {
  const text = readFileSync(ROLES, "utf8")
    .split("---")
    .find((part) => part.includes(`(list $ "${name}")`));
  const rules = [...(text ?? "").matchAll(/resources: \[(.*)\]\n\s+verbs: \[(.*)\]/g)];
  const words = (list: string | undefined) => (list ?? "").split(", ");
  return rules.flatMap(([, resources, verbs]) =>
    words(resources).flatMap((resource) => words(verbs).map((verb) => `${verb} ${resource}`)),
  );
}

let rights: Set<string> | undefined;

/** `operate` or `view` for a role, or rights with commas, as `update pauses,get gates`; empty for all rights. */
export function choose(words: string): void {
  if (words === "") rights = undefined;
  else rights = new Set(words.includes(" ") ? words.split(",") : role(words));
}

/** Whether the caller may do this. Only rights about our own group are chosen. */
export function allows({ verb, group, resource, name, namespace }: Record<string, string>): boolean {
  if (!rights || group !== "ownergraph.dev") return namespace !== "billing";
  return rights.has(`${verb} ${resource}`) || rights.has(`${verb} ${resource}/${name}`);
}
