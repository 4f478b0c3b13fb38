// What is wrong, in words, and what the reader can do about it.

import { Code, ConnectError } from "@connectrpc/connect";
import { ErrorInfoSchema } from "../generated/google/rpc/error_details_pb.ts";
import { BackendError, listsItself, takesLogin } from "./backend.ts";

export interface Problem {
  words: string;
  /** What the reader can do; empty if the page goes on by itself. */
  next: string;
  /** Whether another try can succeed without the reader. */
  retry: boolean;
  /** The token of the user is missing, or not accepted. */
  login?: boolean;
  /** A sign-in or a right is missing. It can come while the page is open. */
  denied?: boolean;
}

export function problem(thrown: unknown): Problem {
  if (thrown instanceof BackendError) {
    if (thrown.status === 401) return unknownUser();
    const { message, status } = thrown;
    return { words: message, next: status === 0 ? away : "", retry: status === 0 || status === 429 || status >= 500 };
  }
  const error = ConnectError.from(thrown);
  const info = error.findDetails(ErrorInfoSchema)[0];
  const metadata: Record<string, string> = info?.metadata ?? {};
  const text = error.rawMessage;
  switch (info?.reason) {
    case "NOT_LEADER": {
      const leader = metadata["leader"];
      return { words: `This replica does not lead${leader ? `; ${leader} does` : ""}.`, next: "", retry: true };
    }
    case "NO_LEADER":
      if (listsItself()) return unserved;
      return { words: "No replica leads at the moment: the leader changes. Reads go on.", next: "", retry: true };
    case "REPLICA_BEHIND":
      return { words: "The graph of this replica is behind the API server.", next: "", retry: true };
    case "STOPPING":
      return { words: "This replica is stopping. Another one takes over.", next: "", retry: true };
    case "ACCESS_DENIED": {
      const { verb = "read", resource = "objects", namespace = "" } = metadata;
      const where = namespace ? `in namespace ${namespace}` : "in all namespaces";
      const next = remedy(resource, namespace);
      return { words: `You may not ${verb} ${resource} ${where}.`, next, retry: false, denied: true };
    }
    case "CREDENTIALS_MISSING":
    case "CREDENTIALS_INVALID":
    case "TOKEN_FOR_OTHER_AUDIENCE":
      if (takesLogin()) return unknownUser();
      return { words: `The API server does not accept your credentials: ${text}`, next: again, retry: true };
    case "EXPRESSION_INVALID":
      return { words: `The expression is invalid: ${text}`, next: "Correct the expression.", retry: false };
    case "TRAVERSAL_LIMIT":
      return {
        words: `There are more than ${metadata["limit"] ?? "the limit of"} objects below this one.`,
        next: "Begin at an object further down. The page of an object can also show a smaller depth.",
        retry: false,
      };
    case "OBJECT_NOT_FOUND":
      return {
        words: "The graph knows no such object.",
        next: "Check the kind, the namespace and the name.",
        retry: false,
      };
    case "UID_MISMATCH":
      return {
        words: "The name belongs to a newer object with another uid.",
        next: "Search for the name.",
        retry: false,
      };
    case "PAGE_TOKEN_EXPIRED":
    case "PAGE_TOKEN_MISMATCH":
      return { words: "The list changed replicas or is too old to go on.", next: "", retry: true };
    case "NOT_OBSERVING":
      return { words: "The service enforces its decisions, so it compares nothing.", next: "", retry: false };
    case "LIMIT_EXCEEDED":
      return {
        words: `A limit of the service is reached: ${text}`,
        next: "Close other tabs of the console.",
        retry: true,
      };
  }
  switch (error.code) {
    case Code.Unauthenticated:
      return unknownUser();
    case Code.Unavailable:
    case Code.Unknown:
    case Code.DeadlineExceeded:
      return { words: `The service does not answer: ${text}`, next: "", retry: true };
    case Code.Aborted:
    case Code.Canceled:
    case Code.OutOfRange:
    case Code.ResourceExhausted:
      return { words: text, next: "", retry: true };
    default:
      return { words: text, next: "", retry: false };
  }
}

/** What helps a caller without a right: the role of the chart that has it. */
function remedy(resource: string, namespace: string): string {
  if (["status", "executors", "collections", "pauses", "gates"].includes(resource))
    return "Ask for the role ownergraph-operate, by a ClusterRoleBinding.";
  if (!["graphobjects", "decisions"].includes(resource)) return "Ask for this right.";
  return namespace
    ? "Ask for the role ownergraph-view in that namespace."
    : "Choose a namespace at the top of the page, or ask for the role ownergraph-view in all of them.";
}

const unknownUser = (): Problem =>
  takesLogin()
    ? {
        words: "The API server does not know you.",
        next: "Sign in with a token.",
        retry: false,
        login: true,
        denied: true,
      }
    : expired;
const again = "Sign in again where kubectl does, and start kubectl ownergraph console again.";
const away = "If kubectl ownergraph console has ended, start it again.";
const unserved: Problem = {
  words: "No graph service answers, and only a graph service has this.",
  next: "Run ownergraph collect or install the chart, and start the console again.",
  retry: false,
};
const expired: Problem = {
  words: "The token of this page is not valid any more.",
  next: "Open the newest address that kubectl ownergraph console has printed, or start it again.",
  retry: false,
  denied: true,
};
