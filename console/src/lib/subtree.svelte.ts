// The objects below one object, or in one namespace, live.

import type { MessageInitShape } from "@bufbuild/protobuf";
import { Code, ConnectError } from "@connectrpc/connect";
import {
  NodeState,
  type WatchDependentsRequestSchema,
  type WatchDependentsResponse,
  WatchDependentsResponse_ChangeType as ChangeType,
} from "../generated/ownergraph/graph/v1beta1/graph_service_pb.ts";
import type { ObjectRef, ResponseMeta } from "../generated/ownergraph/type/v1beta1/type_pb.ts";
import { graph } from "./clients.ts";
import { Feed } from "./feed.svelte.ts";
import { namespaceOf } from "./query.ts";
import { millis } from "./time.ts";
import { Item } from "./tree.ts";

type Request = MessageInitShape<typeof WatchDependentsRequestSchema>;

/** The page shows many changes of one moment together: the more objects it has, the longer the moment. */
const together = (objects: number) => Math.min(1000, 200 + objects / 20);
const FLASH_MS = 1000;

export class Subtree {
  #items = new Map<string, Item>();
  /** A new array after changes; the objects in it are not copied. */
  items = $state.raw<Item[]>([]);
  /** Whether `items` has all existing objects. */
  complete = $state(false);
  /** The graph has neither the object nor a reference to it. */
  absent = $state(false);
  meta = $state.raw<ResponseMeta>();
  redacted = $state(0);
  /** Objects that changed within the last second. */
  flashes = $state.raw<ReadonlySet<string>>(new Set());
  feed: Feed<WatchDependentsResponse>;
  #token = new Uint8Array();
  #timer: ReturnType<typeof setTimeout> | undefined;
  #changed = new Set<string>();
  /** Whether all existing objects have come since the last start. What is shown stays until then. */
  #whole = false;

  /**
   * `went` is called for each object that is gone. A page that gives it counts objects and shows no references. The items
   * leave them out then, because they take a third of the memory.
   */
  constructor(
    ref: () => ObjectRef,
    maxDepth: number,
    private readonly went?: (uid: string, kind: string) => void,
  ) {
    this.feed = new Feed(
      (signal) => {
        const namespace = namespaceOf(ref());
        const request = namespace ? { include: [{ namespaces: [namespace] }] } : { ref: ref(), maxDepth };
        return this.#open(request, signal);
      },
      (message) => this.take(message),
    );
  }

  async *#open(request: Request, signal: AbortSignal): AsyncIterable<WatchDependentsResponse> {
    // A stream without a token sends all objects, and none of those that went in between.
    if (this.#token.length === 0) this.#restart();
    try {
      yield* graph.watchDependents({ ...request, resumeToken: this.#token }, { signal });
    } catch (error) {
      const { code } = ConnectError.from(error);
      if (code === Code.NotFound) this.absent = true;
      const isRefused = code === Code.InvalidArgument || code === Code.FailedPrecondition;
      if (!isRefused || this.#token.length === 0) throw error;
      this.#token = new Uint8Array();
      throw new ConnectError("the stream cannot go on where it stopped, and begins anew", Code.Aborted);
    }
  }

  #restart(): void {
    this.#items.clear();
    this.#whole = false;
  }

  take({ event, resumeToken, meta }: WatchDependentsResponse): number | void {
    this.absent = false;
    if (meta) this.meta = meta;
    if (resumeToken.length > 0) this.#token = new Uint8Array(resumeToken);
    switch (event.case) {
      case "batch":
        for (const { type, node, edges, depth } of event.value.changes) {
          const uid = node?.ref?.uid;
          if (!node || !uid) continue;
          if (type === ChangeType.REMOVED) {
            this.#items.delete(uid);
            if (node.state === NodeState.GONE) this.went?.(uid, node.ref!.kind);
          } else this.#items.set(uid, new Item(uid, node, depth, this.went ? [] : edges));
          if (this.#whole && this.complete) this.#changed.add(uid);
        }
        this.#show();
        return;
      case "bookmark":
        this.redacted = event.value.redactedCount;
        if (event.value.snapshotComplete) {
          this.#whole = true;
          this.#show();
        }
        return;
      case "reset":
        this.#restart();
        return;
      case "goingAway":
        return millis(event.value.reconnectAfter);
    }
  }

  #show(): void {
    this.#timer ??= setTimeout(() => {
      this.#timer = undefined;
      if (this.complete && !this.#whole) return;
      this.complete = this.#whole;
      this.items = [...this.#items.values()];
      const flashes = (this.flashes = this.#changed);
      this.#changed = new Set();
      if (flashes.size > 0)
        setTimeout(() => {
          if (this.flashes === flashes) this.flashes = new Set();
        }, FLASH_MS);
    }, together(this.#items.size));
  }
}
