// The rights of the caller. About guards, the tests choose a role of the chart, or single rights.

import { readFileSync } from "node:fs";

const ROLES = new URL("../../deploy/chart/templates/callers.yaml", import.meta.url);
const TABLE = new URL("../../graph-service/src/grpc/rights.rs", import.meta.url);

/** The right that each call needs, by the path of the call: for all namespaces, or for those that the call names. */
export const needs = new Map(
  [...readFileSync(TABLE, "utf8").matchAll(/"(\S+)", (everywhere|by_namespace)\("(\w+)", "(\w+)"\)/g)].map(
    ([, rpc = "", scope, verb = "", resource = ""]) => [rpc, { everywhere: scope === "everywhere", verb, resource }],
  ),
);

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
