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

/** Of these, the kinds without a namespace. */
const CLUSTER_SCOPED = ["namespaces", "nodes", "persistentvolumes", "customresourcedefinitions"];

/** Kinds that kubectl users shorten. Other short names belong to definitions, which only the API server knows. */
const SHORT: Record<string, [string, string]> = {
  cm: ["", "configmaps"],
  deploy: ["apps", "deployments"],
  deployment: ["apps", "deployments"],
  deployments: ["apps", "deployments"],
  rs: ["apps", "replicasets"],
  replicaset: ["apps", "replicasets"],
  sts: ["apps", "statefulsets"],
  statefulset: ["apps", "statefulsets"],
  ds: ["apps", "daemonsets"],
  daemonset: ["apps", "daemonsets"],
  po: ["", "pods"],
  pod: ["", "pods"],
  svc: ["", "services"],
  service: ["", "services"],
  ns: ["", "namespaces"],
  namespace: ["", "namespaces"],
  no: ["", "nodes"],
  node: ["", "nodes"],
  pvc: ["", "persistentvolumeclaims"],
  pv: ["", "persistentvolumes"],
  nodes: ["", "nodes"],
  namespaces: ["", "namespaces"],
  sa: ["", "serviceaccounts"],
  secret: ["", "secrets"],
  configmap: ["", "configmaps"],
  job: ["batch", "jobs"],
  cj: ["batch", "cronjobs"],
  cronjob: ["batch", "cronjobs"],
  ing: ["networking.k8s.io", "ingresses"],
  crd: ["apiextensions.k8s.io", "customresourcedefinitions"],
};

export type Search = { ref: ObjectRef } | { text: string; namespace: string } | undefined;

/** Reads `deploy/web -n shop`, `deployments.apps/web`, `uid` or a part of a name. */
export function parseSearch(typed: string, scope: string): Search {
  const words = typed.trim().split(/\s+/).filter(Boolean);
  const at = words.findIndex((word) => word === "-n" || word === "--namespace");
  const namespace = at >= 0 ? (words[at + 1] ?? "") : scope;
  if (at >= 0) words.splice(at, 2);
  if (words.length === 0) return undefined;
  if (words.length === 1 && /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/.test(words[0]!))
    return { ref: create(ObjectRefSchema, { uid: words[0]!, namespace }) };
  const [type, name] = words.length === 2 ? words : words[0]!.includes("/") ? words[0]!.split("/") : [];
  if (!type || !name) return { text: words.join(" "), namespace };
  const short = SHORT[type.toLowerCase()];
  if (short) {
    const [group, resource] = short;
    const within = CLUSTER_SCOPED.includes(resource) ? "" : namespace;
    return { ref: create(ObjectRefSchema, { group, resource, namespace: within, name }) };
  }
  const dot = type.indexOf(".");
  const [plain, group] = dot > 0 ? [type.slice(0, dot), type.slice(dot + 1)] : [type, ""];
  // The service compares kinds as they are written, and plural names in lower case.
  const which = /^[A-Z]/.test(plain) ? { kind: plain } : { resource: plain };
  return { ref: create(ObjectRefSchema, { ...which, group, namespace, name }) };
}
