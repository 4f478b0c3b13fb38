// One object as the collector judges it, asked again every few seconds.

import {
  type ExplainObjectResponse,
  type ListOwnersResponse_Owner,
  Verdict,
} from "../generated/ownergraph/graph/v1beta1/graph_service_pb.ts";
import type { ObjectRef } from "../generated/ownergraph/type/v1beta1/type_pb.ts";
import { Asked } from "./asked.svelte.ts";
import { graph } from "./clients.ts";
import { problem } from "./problem.ts";
import { ownerGaps } from "./why.ts";

const AGAIN_MS = 5000;

interface Judgement {
  explained: ExplainObjectResponse;
  owners: ListOwnersResponse_Owner[];
  /** What is not known of the owners, as sentences. */
  ownerGaps: string[];
}

export class Judged extends Asked<Judgement> {
  constructor(given: ObjectRef) {
    super(async (signal) => {
      // A name can pass to another object: from the first answer on, the uid says which one is meant.
      const ref = this.ref ?? given;
      const [explained, above] = await Promise.all([
        graph.explainObject({ ref }, { signal }),
        graph.listOwners({ ref, maxDepth: 1 }, { signal }).then(
          (answer) => ({ owners: answer.owners, ownerGaps: ownerGaps(answer) }),
          (error: unknown) => ({
            owners: this.answer?.owners ?? [],
            ownerGaps: [`The owners could not be read just now: ${problem(error).words}`],
          }),
        ),
      ]);
      // The graph has no owners of an object that is gone.
      return { explained, ...above, ...(explained.verdict === Verdict.GONE ? { ownerGaps: [] } : {}) };
    }, AGAIN_MS);
  }

  get explained(): ExplainObjectResponse | undefined {
    return this.answer?.explained;
  }

  /** The object with its uid, as soon as that is known. */
  get ref(): ObjectRef | undefined {
    const ref = this.explained?.node?.ref;
    return ref?.uid ? ref : undefined;
  }
}
