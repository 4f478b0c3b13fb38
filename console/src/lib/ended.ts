// What ended: the newest of it, and the numbers of all of it.

import type { Cause } from "../generated/ownergraph/decision/v1beta1/decision_service_pb.ts";

/** Maximum number of things that the page remembers. A cascade of 50,000 objects fits. */
export const ENDED_MAX = 100_000;

export interface Timed {
  id: string;
  at: number;
}
/** An object that is gone. Its id is its uid. */
export interface Done extends Timed {
  cause: Cause;
  kind: string;
  /** From the deletion of the root, in milliseconds; undefined if that is unknown. */
  took: number | undefined;
}

/** In the order of time. Beyond the maximum, the oldest quarter leaves the map. */
export function newest<T extends Timed>(all: Map<string, T>, most = ENDED_MAX): T[] {
  const sorted = [...all.values()].sort((a, b) => a.at - b.at);
  if (sorted.length > most)
    for (const { id } of sorted.splice(0, sorted.length - Math.floor((most * 3) / 4))) all.delete(id);
  return sorted;
}

export class Ended {
  /** The numbers count what the page does not remember any more. */
  total = 0;
  kinds = new Map<string, number>();
  causes = new Map<Cause, number>();
  /** The page remembers nothing that is older. */
  #oldest = -Infinity;
  /** By object: the log, its stream and the tree may all have it. */
  #newest = new Map<string, Done>();

  constructor(private readonly most = ENDED_MAX) {}

  has(uid: string): boolean {
    return this.#newest.has(uid);
  }

  /** How many the numbers count and the page does not remember. */
  get forgotten(): number {
    return this.total - this.#newest.size;
  }

  add(done: Done): void {
    if (!this.has(done.id)) {
      // The numbers have it already: the log is read again after each break of its stream.
      if (done.at <= this.#oldest) return;
      this.total += 1;
      this.kinds.set(done.kind, (this.kinds.get(done.kind) ?? 0) + 1);
      this.causes.set(done.cause, (this.causes.get(done.cause) ?? 0) + 1);
    }
    this.#newest.set(done.id, done);
  }

  /** Those that the page remembers, the oldest first. */
  sorted(): Done[] {
    const sorted = newest(this.#newest, this.most);
    if (this.forgotten > 0) this.#oldest = sorted[0]!.at;
    return sorted;
  }
}
