// The objects below one object, live.

import type { Node, WatchDependentsResponse } from "../generated/ownergraph/graph/v1beta1/graph_service_pb.ts";
import { WatchDependentsResponse_ChangeType as ChangeType } from "../generated/ownergraph/graph/v1beta1/graph_service_pb.ts";
import type { ObjectRef, ResponseMeta } from "../generated/ownergraph/type/v1beta1/type_pb.ts";
import { app } from "./app.svelte.ts";
import { graph } from "./clients.ts";
import { Feed } from "./feed.svelte.ts";
import { millis } from "./time.ts";
import type { Item } from "./tree.ts";

/** The page shows many changes of one moment together. */
const TOGETHER_MS = 200;
const FLASH_MS = 1000;

export class Subtree {
  #items = new Map<string, Item>();
  /** A new array after changes; the objects in it are not copied. */
  items = $state.raw<Item[]>([]);
  complete = $state(false);
  meta = $state.raw<ResponseMeta>();
  redacted = $state(0);
  /** Objects that changed within the last second. */
  flashes = $state.raw<ReadonlySet<string>>(new Set());
  /** Objects that went since the page opened, with the time. */
  gone: { at: number; node: Node }[] = [];
  feed: Feed<WatchDependentsResponse>;
  #token = new Uint8Array();
  #timer: ReturnType<typeof setTimeout> | undefined;
  #changed = new Set<string>();

  constructor(ref: ObjectRef, depth: number) {
    this.feed = new Feed(
      (signal) => graph.watchDependents({ ref, maxDepth: depth, resumeToken: this.#token }, { signal }),
      (message) => this.#take(message),
    );
  }

  #take({ event, resumeToken, meta }: WatchDependentsResponse): number | void {
    if (meta) this.meta = meta;
    if (resumeToken.length > 0) this.#token = new Uint8Array(resumeToken);
    switch (event.case) {
      case "batch":
        for (const { type, node, edges, depth } of event.value.changes) {
          const uid = node?.ref?.uid;
          if (!node || !uid) continue;
          if (type === ChangeType.REMOVED) {
            this.#items.delete(uid);
            this.gone.push({ at: Date.now(), node });
          } else this.#items.set(uid, { uid, node, edges, depth });
          if (this.complete) this.#changed.add(uid);
          app.seen(node.deleteTime);
        }
        this.#show();
        return;
      case "bookmark":
        this.redacted = event.value.redactedCount;
        if (event.value.snapshotComplete) {
          this.complete = true;
          this.#show();
        }
        return;
      case "reset":
        this.#items.clear();
        this.complete = false;
        return;
      case "goingAway":
        return millis(event.value.reconnectAfter);
    }
  }

  #show(): void {
    this.#timer ??= setTimeout(() => {
      this.#timer = undefined;
      this.items = [...this.#items.values()];
      const flashes = (this.flashes = this.#changed);
      this.#changed = new Set();
      if (flashes.size > 0)
        setTimeout(() => {
          if (this.flashes === flashes) this.flashes = new Set();
        }, FLASH_MS);
    }, TOGETHER_MS);
  }
}
