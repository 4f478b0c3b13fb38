// The kubectl command that gives the same answer as a view.

import type { ObjectRef } from "../generated/ownergraph/type/v1beta1/type_pb.ts";

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
