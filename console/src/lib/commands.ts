// The kubectl command that gives the same answer as a view.

import type { ObjectRef } from "../generated/ownergraph/type/v1beta1/type_pb.ts";

export function quoted(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}

/** `deployments.apps/web`, so that no short name can mean another kind. */
export function byType(ref: Pick<ObjectRef, "group" | "resource" | "kind" | "name">): string {
  return `${ref.resource || ref.kind}${ref.group ? `.${ref.group}` : ""}/${ref.name}`;
}

/** Joins words to a command. Undefined words are left out. */
export function command(context: string | undefined, ...words: (string | undefined | false)[]): string {
  const all = ["kubectl", "ownergraph", context && "--context", context, ...words];
  return all
    .filter((word): word is string => typeof word === "string" && word !== "")
    .map(quoted)
    .join(" ");
}

/** The words that name an object. */
export function naming(ref: Pick<ObjectRef, "group" | "resource" | "kind" | "name" | "namespace">): string[] {
  return ref.namespace ? [byType(ref), "-n", ref.namespace] : [byType(ref)];
}

/** The words that name the scope of a search. */
export const scoped = (namespace: string): string[] => (namespace ? ["-n", namespace] : ["-A"]);
