// The metadata of an object as YAML, for reading and copying.

import type { Node } from "../generated/ownergraph/graph/v1beta1/graph_service_pb.ts";
import { instant } from "./time.ts";

/**
 * JSON's form of a text is YAML too. Texts without a meaning of their own stay plain. Of invisible characters JSON
 * escapes few.
 */
function scalar(text: string): string {
  return /^[A-Za-z][\w./-]*$/.test(text) && !/^(true|false|null|yes|no|on|off|y|n)$/i.test(text)
    ? text
    : JSON.stringify(text).replace(/[\p{Cc}\p{Cf}\u2028\u2029]/gu, (character) =>
        character
          .split("")
          .map((unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`)
          .join(""),
      );
}

export function yaml(node: Node): string {
  const ref = node.ref!;
  const lines = [
    `apiVersion: ${scalar(ref.group ? `${ref.group}/${ref.version}` : ref.version)}`,
    `kind: ${scalar(ref.kind)}`,
    "metadata:",
    `  name: ${scalar(ref.name)}`,
  ];
  if (ref.namespace) lines.push(`  namespace: ${scalar(ref.namespace)}`);
  lines.push(`  uid: ${JSON.stringify(ref.uid)}`);
  if (node.resourceVersion) lines.push(`  resourceVersion: ${JSON.stringify(node.resourceVersion)}`);
  if (node.deleteTime)
    lines.push(`  deletionTimestamp: ${JSON.stringify(new Date(instant(node.deleteTime)!).toISOString())}`);
  for (const [name, map] of [
    ["labels", node.labels],
    ["annotations", node.annotations],
  ] as const) {
    const entries = Object.entries(map);
    if (entries.length > 0)
      lines.push(`  ${name}:`, ...entries.map(([key, value]) => `    ${scalar(key)}: ${scalar(value)}`));
  }
  if (node.finalizers.length > 0) lines.push("  finalizers:", ...node.finalizers.map((name) => `  - ${scalar(name)}`));
  if (node.ownerReferences.length > 0) lines.push("  ownerReferences:");
  for (const owner of node.ownerReferences) {
    lines.push(
      `  - apiVersion: ${scalar(owner.apiVersion)}`,
      `    kind: ${scalar(owner.kind)}`,
      `    name: ${scalar(owner.name)}`,
      `    uid: ${JSON.stringify(owner.uid)}`,
    );
    if (owner.controller !== undefined) lines.push(`    controller: ${owner.controller}`);
    if (owner.blockOwnerDeletion !== undefined) lines.push(`    blockOwnerDeletion: ${owner.blockOwnerDeletion}`);
  }
  return `${lines.join("\n")}\n`;
}
