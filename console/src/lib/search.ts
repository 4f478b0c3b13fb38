// What a reader types into the search: pure functions.

import { create } from "@bufbuild/protobuf";
import { type GroupResource, type ObjectRef, ObjectRefSchema } from "../generated/ownergraph/type/v1beta1/type_pb.ts";

/** The usual kinds without a namespace. */
const CLUSTER_SCOPED = [
  "namespaces",
  "nodes",
  "persistentvolumes",
  "storageclasses",
  "clusterroles",
  "clusterrolebindings",
  "customresourcedefinitions",
];

/** Names that kubectl users shorten. Those of other kinds are in their definitions, which only the API server has. */
const SHORT: Record<string, string> = {
  cj: "cronjobs",
  cm: "configmaps",
  crd: "customresourcedefinitions",
  deploy: "deployments",
  ds: "daemonsets",
  ep: "endpoints",
  ev: "events",
  hpa: "horizontalpodautoscalers",
  ing: "ingresses",
  netpol: "networkpolicies",
  no: "nodes",
  ns: "namespaces",
  pdb: "poddisruptionbudgets",
  po: "pods",
  pv: "persistentvolumes",
  pvc: "persistentvolumeclaims",
  rc: "replicationcontrollers",
  rs: "replicasets",
  sa: "serviceaccounts",
  sc: "storageclasses",
  sts: "statefulsets",
  svc: "services",
};

/** Plural names in lower case that a typed plural, singular, kind or short name can mean. */
function plurals(typed: string): string[] {
  const name = typed.toLowerCase();
  const short = SHORT[name];
  return [...(short ? [short] : []), name, `${name}s`, `${name}es`, name.replace(/y$/, "ies")];
}

/** As kubectl does where groups share a name: the core group, the groups of Kubernetes, then others. */
const rank = (group: string): number => (group === "" ? 0 : !group.includes(".") || group.endsWith(".k8s.io") ? 1 : 2);

export type Kind = Pick<GroupResource, "group" | "resource">;

/** The plural names that a typed type can mean, and its group if it names one. */
function parts(typed: string): { names: string[]; group: string | undefined } {
  const dot = typed.indexOf(".");
  const [plain, group] = dot > 0 ? [typed.slice(0, dot), typed.slice(dot + 1)] : [typed, undefined];
  return { names: plurals(plain), group };
}

/** The collection that `pods`, `StatefulSet` or `deploy.apps` means; undefined if none of `served` fits. */
export function resolveType(typed: string, served: Kind[]): Kind | undefined {
  const { names, group } = parts(typed);
  const fits = served.filter((of) => names.includes(of.resource) && (group === undefined || of.group === group));
  fits.sort(
    (a, b) =>
      names.indexOf(a.resource) - names.indexOf(b.resource) ||
      rank(a.group) - rank(b.group) ||
      (a.group < b.group ? -1 : 1),
  );
  return fits[0];
}

export type Typed = { type: string; name: string };
export type Named = { uid: string } | Typed;
/** The namespace is the one that `-n` names. */
export type Search = ((Named | { text: string }) & { namespace: string | undefined }) | undefined;

/** Reads `deploy/web -n shop`, `deployments.apps/web`, `uid` or a part of a name. */
export function parseSearch(typed: string): Search {
  const words = typed.trim().split(/\s+/).filter(Boolean);
  const at = words.findIndex((word) => word === "-n" || word === "--namespace");
  const namespace = at >= 0 ? words[at + 1] : undefined;
  if (at >= 0) words.splice(at, 2);
  if (words.length === 0) return undefined;
  if (words.length === 1 && /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/.test(words[0]!))
    return { uid: words[0]!, namespace };
  const [type, name] = words.length === 2 ? words : words[0]!.includes("/") ? words[0]!.split("/") : [];
  return type && name ? { type, name, namespace } : { text: words.join(" "), namespace };
}

/**
 * The objects that a search can mean: one in each of the namespaces, or one without. None if no kind of the cluster has
 * the typed name.
 */
export function candidates(search: Named, namespaces: string[], served: Kind[]): ObjectRef[] {
  const places = namespaces.length > 0 ? namespaces : [""];
  if ("uid" in search) return places.map((namespace) => create(ObjectRefSchema, { uid: search.uid, namespace }));
  const { type, name } = search;
  const of = resolveType(type, served) ?? unserved(type);
  if (!of) return [];
  const within = "resource" in of && CLUSTER_SCOPED.includes(of.resource) ? [""] : places;
  return within.map((namespace) => create(ObjectRefSchema, { ...of, namespace, name }));
}

/**
 * The filter for the objects that a search by type and name can mean. Only operators may list the kinds of the cluster,
 * so others learn the kind from these objects.
 */
export function admitting({ type, name }: Typed, namespaces: string[]): { cel: string; namespaces: string[] } {
  const { names, group } = parts(type);
  const isOne = names.map((resource) => `object.resource == ${JSON.stringify(resource)}`).join(" || ");
  const isOf = group === undefined ? "" : ` && object.group == ${JSON.stringify(group)}`;
  const isCluster = names.some((resource) => CLUSTER_SCOPED.includes(resource));
  return {
    cel: `object.name == ${JSON.stringify(name)} && (${isOne})${isOf}`,
    namespaces: isCluster ? [] : namespaces,
  };
}

/** References keep a kind with its group in the graph after its definition is gone. */
function unserved(type: string): Kind | { kind: string; group: string } | undefined {
  const [, plain, group] = /^([^.]+)\.(.+)$/.exec(type) ?? [];
  if (!plain || !group) return undefined;
  // The service compares kinds as they are written, and plural names in lower case.
  return /^[A-Z]/.test(plain) ? { kind: plain, group } : { resource: plain, group };
}
