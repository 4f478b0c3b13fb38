// One object as the collector judges it, asked again every few seconds.

import type {
  ExplainObjectResponse,
  ListOwnersResponse_Owner,
} from "../generated/ownergraph/graph/v1beta1/graph_service_pb.ts";
import type { ObjectRef } from "../generated/ownergraph/type/v1beta1/type_pb.ts";
import { Asked } from "./asked.svelte.ts";
import { graph } from "./clients.ts";

const AGAIN_MS = 5000;

export class Judged extends Asked<{ explained: ExplainObjectResponse; owners: ListOwnersResponse_Owner[] }> {
  constructor(given: ObjectRef) {
    super(async (signal) => {
      // A name can pass to another object: from the first answer on, the uid says which one is meant.
      const ref = this.ref ?? given;
      const [explained, owners] = await Promise.all([
        graph.explainObject({ ref }, { signal }),
        graph.listOwners({ ref, maxDepth: 1 }, { signal }).then(
          (answer) => answer.owners,
          () => this.answer?.owners ?? [],
        ),
      ]);
      return { explained, owners };
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
