// Pauses that the page makes.

import { create } from "@bufbuild/protobuf";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { type Pause, PauseSchema } from "../src/generated/ownergraph/admin/v1beta1/admin_service_pb.ts";
import type { NewPause } from "../src/lib/backend.ts";

export const pauses = new Map<string, Pause>();

export function begin({ namespaces, kinds, owner, reason, lifetimeSeconds }: NewPause): { name: string } {
  const name = `pauses/console-${pauses.size + 1}`;
  const expireTime = timestampFromMs(Date.now() + lifetimeSeconds * 1000);
  const target = { namespaces, resources: kinds.map((resource) => ({ resource })), ...(owner && { owner }) };
  const targets = owner || namespaces.length + kinds.length > 0 ? [target] : [];
  pauses.set(name, create(PauseSchema, { name, reason, expireTime, effective: true, scope: { targets } }));
  return { name };
}
