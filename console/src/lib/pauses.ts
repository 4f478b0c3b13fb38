// Pauses of single cascades: pure functions.

import type { Pause } from "../generated/ownergraph/admin/v1beta1/admin_service_pb.ts";
import type { ObjectRef, OwnerScope } from "../generated/ownergraph/type/v1beta1/type_pb.ts";

export type Owner = Pick<OwnerScope, "group" | "resource" | "namespace" | "name" | "uid">;

/** The scope of an object and of all objects below it. */
export const ownerOf = ({ group, resource, namespace, name, uid }: ObjectRef): Owner => ({
  group,
  resource,
  namespace,
  name,
  uid,
});

/** Whether the scope of a pause is this object with all objects below it, and nothing else. */
export function isOfCascade({ scope, omittedTargets, expired }: Pause, root: ObjectRef): boolean {
  const [target, ...others] = scope?.targets ?? [];
  if (expired || omittedTargets > 0 || !target?.owner || others.length > 0) return false;
  const { resources, namespaces, names, labelSelector, namespaceSelector, owner } = target;
  const isNarrower = [resources, namespaces, names].some((of) => of.length > 0) || labelSelector || namespaceSelector;
  const isRoot = (["group", "resource", "namespace", "name"] as const).every((field) => owner[field] === root[field]);
  return !isNarrower && isRoot && (owner.uid === "" || owner.uid === root.uid);
}
