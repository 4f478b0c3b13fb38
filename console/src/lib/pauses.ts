// Pauses of single cascades: pure functions.

import type { Pause } from "../generated/ownergraph/admin/v1beta1/admin_service_pb.ts";
import type { ObjectRef, OwnerScope } from "../generated/ownergraph/type/v1beta1/type_pb.ts";
import type { NewPause } from "./backend.ts";
import { namespaceOf } from "./query.ts";

export type Owner = Pick<OwnerScope, "group" | "resource" | "namespace" | "name" | "uid">;

/** An object with all objects below it. Of a namespace, the objects in it, which have no chain of owners to it. */
export function scopeOf(root: ObjectRef): Pick<NewPause, "namespaces" | "kinds" | "owner"> {
  const inside = namespaceOf(root);
  if (inside) return { namespaces: [inside], kinds: [] };
  const { group, resource, namespace, name, uid } = root;
  return { namespaces: [], kinds: [], owner: { group, resource, namespace, name, uid } };
}

/** Whether the scope of a pause is that of this root, and nothing else. */
export function isOfCascade({ scope, omittedTargets, expired }: Pause, root: ObjectRef): boolean {
  const [target, ...others] = scope?.targets ?? [];
  if (expired || omittedTargets > 0 || !target || others.length > 0) return false;
  const { resources, namespaces, names, labelSelector, namespaceSelector, owner } = target;
  const wanted = scopeOf(root);
  if (resources.length > 0 || names.length > 0 || labelSelector || namespaceSelector) return false;
  if (namespaces.join() !== wanted.namespaces.join()) return false;
  if (!owner || !wanted.owner) return owner === wanted.owner;
  const isRoot = (["group", "resource", "namespace", "name"] as const).every((field) => owner[field] === root[field]);
  return isRoot && (owner.uid === "" || owner.uid === root.uid);
}
