// The kubectl command that gives the same answer as a view.

import type { ObjectRef } from "../generated/ownergraph/type/v1beta1/type_pb.ts";
import { listed, namespaceOf } from "./query.ts";

/** A word of a shell. Controls are written out: a terminal would obey them while the command is pasted. */
export function quoted(word: string): string {
  if (/\p{Cc}/u.test(word)) {
    const escaped = word.replaceAll(/['\\]/g, "\\$&").replaceAll(/\p{Cc}/gu, (character) => {
      const code = character.charCodeAt(0);
      return code < 128 ? `\\x${code.toString(16).padStart(2, "0")}` : `\\u${code.toString(16).padStart(4, "0")}`;
    });
    return `$'${escaped}'`;
  }
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}

/** `deployments.apps/web`, so that no short name can mean another kind. */
export function byType(ref: Pick<ObjectRef, "group" | "resource" | "kind" | "name">): string {
  return `${ref.resource || ref.kind}${ref.group ? `.${ref.group}` : ""}/${ref.name}`;
}

type Word = string | undefined | false;

/** A command of this plug-in. */
export const command = (context: string | undefined, ...words: Word[]): string =>
  joined("kubectl", "ownergraph", context && "--context", context, ...words);

/** A command of kubectl itself, in the same cluster. */
export const kubectl = (context: string | undefined, ...words: Word[]): string =>
  joined("kubectl", context && "--context", context, ...words);

/** Undefined words are left out. */
const joined = (...words: Word[]): string =>
  words
    .filter((word): word is string => typeof word === "string" && word !== "")
    .map(quoted)
    .join(" ");

/** The words that name an object. */
export function naming(ref: Pick<ObjectRef, "group" | "resource" | "kind" | "name" | "namespace">): string[] {
  return ref.namespace ? [byType(ref), "-n", ref.namespace] : [byType(ref)];
}

/** A command for namespaces with commas, or for all of them. The plug-in takes one at a time. */
export const scoped = (context: string | undefined, namespaces: string, ...words: Word[]): string =>
  (namespaces ? namespaces.split(",").map((name) => ["-n", name]) : [["-A"]])
    .map((scope) => command(context, ...words, ...scope))
    .join("; ");

/** The command for a view of an object. Of the filters, kinds alone have a flag. */
export function viewing(
  context: string | undefined,
  ref: ObjectRef,
  view: string,
  depth: number | undefined,
  query: URLSearchParams,
): string {
  if (view === "timeline" && ref.uid) {
    const uid = JSON.stringify(ref.uid);
    const about = `event.target.uid == ${uid} || event.root.uid == ${uid}`;
    const cel = `--cel=${about} || event.cause_chain.exists(owner, owner.uid == ${uid})`;
    return scoped(context, ref.namespace, "decisions", "--since=0s", cel);
  }
  const inside = namespaceOf(ref);
  if (inside) return command(context, "export", "-o", view === "table" ? "name" : "mermaid", "-n", inside);
  const kinds = listed(query, "kinds");
  const form = view === "table" ? ["-o", "table"] : [query.get("fold") === "no" && "--no-fold"];
  return command(
    context,
    "tree",
    ...naming(ref),
    depth !== undefined && `--depth=${depth}`,
    kinds.length > 0 && `--kinds=${kinds.join(",")}`,
    ...form,
  );
}

/** Choices of the page Decisions in the words of the command, where these are not the same in lower case. */
const SPELLED: Record<string, string> = {
  SUCCEEDED: "done",
  CONFIRMED: "gone",
  AWAITING_FINALIZERS: "finalizers",
  REMOVE_OWNER_REFERENCES: "unref",
  UNBLOCK_OWNER_REFERENCES: "unblock",
  REMOVE_FINALIZER: "unfinalize",
};

/** A flag of `decisions` for these choices; undefined without any. */
export const choosing = (flag: string, choices: string[]): string | undefined =>
  choices.length > 0
    ? `--${flag}=${choices.map((one) => SPELLED[one] ?? one.toLowerCase().replaceAll("_", "-")).join(",")}`
    : undefined;
