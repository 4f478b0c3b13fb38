// The query of the address: pure functions. `route.svelte.ts` holds the current one.

import { create, type MessageInitShape } from "@bufbuild/protobuf";
import {
  type ObjectFilterSchema,
  type ObjectRef,
  ObjectRefSchema,
} from "../generated/ownergraph/type/v1beta1/type_pb.ts";

export const PAGES = [
  "overview",
  "object",
  "plan",
  "cascade",
  "decisions",
  "guards",
  "stuck",
  "orphans",
  "cycles",
  "parity",
] as const;
export type Page = (typeof PAGES)[number];

export function pageOf(query: URLSearchParams): Page {
  const page = query.get("page") as Page;
  return PAGES.includes(page) ? page : "overview";
}

/** What one page is about: another object, depth or scope is another page. */
export const subject = (query: URLSearchParams): string =>
  JSON.stringify(
    ["page", "uid", "name", "ns", "kind", "resource", "group", "depth", "in"].map((name) => query.get(name)),
  );

/** The query with these changes. Undefined and empty values leave. */
export function changed(query: URLSearchParams, changes: Record<string, string | undefined>): URLSearchParams {
  const next = new URLSearchParams(query);
  for (const [name, value] of Object.entries(changes)) {
    if (value) next.set(name, value);
    else next.delete(name);
  }
  return next;
}

/** Values of a parameter with commas, in the order of the address. */
export const listed = (query: URLSearchParams, name: string): string[] =>
  (query.get(name) ?? "").split(",").filter(Boolean);

export function refParams(ref: ObjectRef): Record<string, string> {
  const { group, resource, kind, namespace, name, uid } = ref;
  return { group, resource, kind, ns: namespace, name, uid };
}

/** The object that the address names; undefined if it names none. */
export function refOf(query: URLSearchParams): ObjectRef | undefined {
  const get = (name: string) => query.get(name) ?? "";
  const ref = {
    group: get("group"),
    resource: get("resource"),
    kind: get("kind"),
    namespace: get("ns"),
    name: get("name"),
    uid: get("uid"),
  };
  return ref.uid || ref.name ? create(ObjectRefSchema, ref) : undefined;
}

/** The namespace that an object is; empty for all others. */
export const namespaceOf = ({ group, kind, resource, name }: ObjectRef): string =>
  group === "" && (kind === "Namespace" || resource === "namespaces") ? name : "";

/** The address of an object on a page. The scope of searches stays. */
export function objectHref(
  page: Page,
  ref: ObjectRef,
  query: URLSearchParams,
  more: Record<string, string | undefined> = {},
): string {
  const kept = new URLSearchParams();
  for (const name of ["in", "cluster"]) if (query.get(name)) kept.set(name, query.get(name)!);
  return `?${changed(kept, { page, ...refParams(ref), ...more })}`;
}

/** The filters of a search in the namespaces that the reader has chosen. Callers without rights for all need them. */
export function scopeFilter(query: URLSearchParams): MessageInitShape<typeof ObjectFilterSchema>[] {
  const namespaces = listed(query, "in");
  return namespaces.length > 0 ? [{ namespaces }] : [];
}
