// The exported graph, for questions that the service has no call for.

import type { MessageInitShape } from "@bufbuild/protobuf";
import { Code, ConnectError } from "@connectrpc/connect";
import type { ExportGraphResponse } from "../generated/ownergraph/graph/v1beta1/graph_service_pb.ts";
import type { ObjectFilterSchema } from "../generated/ownergraph/type/v1beta1/type_pb.ts";
import { graph } from "./clients.ts";
import { heard } from "./follow.ts";

/** The parts of an export. One that ends without its footer is incomplete, and has failed. */
export async function* exported(
  include: MessageInitShape<typeof ObjectFilterSchema>[],
  signal: AbortSignal,
): AsyncGenerator<ExportGraphResponse["part"], void, undefined> {
  for await (const { part } of heard((signal) => graph.exportGraph({ include }, { signal }), signal)) {
    yield part;
    if (part.case === "footer") return;
  }
  throw new ConnectError("the export ended before its last part", Code.Unavailable);
}
