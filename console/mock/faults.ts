// What can go wrong with the service, switched by the tests with GET /console/mock.

import { Code, ConnectError, type Interceptor } from "@connectrpc/connect";
import { DecisionService } from "../src/generated/ownergraph/decision/v1beta1/decision_service_pb.ts";
import { ErrorInfoSchema } from "../src/generated/google/rpc/error_details_pb.ts";
import { needs } from "./rights.ts";

export const faults = {
  /** Nothing answers. */
  away: false,
  /** The token is not valid any more. */
  expired: false,
  /** Each request needs the token of its user, as in a cluster. */
  login: false,
  /** No replica leads. */
  election: false,
  /** No replica leads, and others serve the graph. */
  leaderless: false,
  /** The caller may not read the decision log. */
  sealed: false,
  /** A collection has no sign of life for two minutes. */
  late: false,
  /** Streams stay open, and send nothing. */
  mute: false,
  /** The caller has rights in namespaces only. */
  narrow: false,
  /** The collector has each of its faults. */
  broken: false,
  /** Lists have more pages than the console reads. */
  crowded: false,
  /** The API server answers no review of a right. */
  review: false,
  /** Each object has more dependents than the service walks. */
  limit: false,
  /** The clock of the cluster is an hour ahead. */
  skew: false,
};
export type Faults = typeof faults;

export const refuse = (words: string, code: Code, reason: string, metadata: Record<string, string> = {}) =>
  new ConnectError(words, code, undefined, [
    { desc: ErrorInfoSchema, value: { reason, domain: "ownergraph.dev", metadata } },
  ]);

/** Whether a request names an object or namespaces: others need the right for all of them. */
function isNarrow(message: object): boolean {
  const text = JSON.stringify(message, (_, value) => (typeof value === "bigint" ? `${value}` : (value as unknown)));
  return !text.includes('"include"') || /"ref":\{|"(namespaces|uids)":\["/.test(text);
}

export const failing: Interceptor = (next) => async (request) => {
  const isLog = request.service.typeName === DecisionService.typeName;
  if (faults.election || (faults.leaderless && isLog)) throw refuse("no leader", Code.Unavailable, "NO_LEADER");
  if (faults.sealed && isLog)
    throw refuse("denied", Code.PermissionDenied, "ACCESS_DENIED", { verb: "list", resource: "decisions" });
  const { everywhere, verb, resource } = needs.get(`${request.service.typeName}/${request.method.name}`)!;
  const check = (message: object) => {
    if (faults.narrow && (everywhere || !isNarrow(message)))
      throw refuse("denied", Code.PermissionDenied, "ACCESS_DENIED", { verb, resource });
  };
  if (!request.stream) {
    check(request.message);
    return next(request);
  }
  const { message } = request;
  async function* checked() {
    for await (const one of message) {
      check(one);
      yield one;
    }
  }
  return next({ ...request, message: checked() });
};
