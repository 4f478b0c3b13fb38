// One object as the collector judges it, asked again every few seconds.

import type {
  ExplainObjectResponse,
  ListOwnersResponse_Owner,
} from "../generated/ownergraph/graph/v1beta1/graph_service_pb.ts";
import type { ObjectRef } from "../generated/ownergraph/type/v1beta1/type_pb.ts";
import { app } from "./app.svelte.ts";
import { graph } from "./clients.ts";
import { type Problem, problem } from "./problem.ts";

const AGAIN_MS = 5000;

export class Judged {
  answer = $state.raw<ExplainObjectResponse>();
  owners = $state.raw<ListOwnersResponse_Owner[]>([]);
  problem = $state.raw<Problem>();

  constructor(readonly ref: ObjectRef) {}

  /** An effect of Svelte. */
  start(): () => void {
    void this.ask();
    const timer = setInterval(() => document.hidden || void this.ask(), AGAIN_MS);
    return () => clearInterval(timer);
  }

  async ask(): Promise<void> {
    try {
      const [answer, { owners }] = await Promise.all([
        graph.explainObject({ ref: this.ref }),
        graph.listOwners({ ref: this.ref, maxDepth: 1 }).catch(() => ({ owners: [] })),
      ]);
      this.answer = answer;
      this.owners = owners;
      this.problem = undefined;
      app.seen(answer.node?.deleteTime);
    } catch (error) {
      this.problem = problem(error);
    }
  }
}
