// The back end for `vite` and `vite preview`: the services over a synthetic cluster, and the paths below /console.

import type { IncomingMessage, ServerResponse } from "node:http";
import type { Connect, Plugin } from "vite";
import { HEADER } from "../csp.ts";
import type { Faults } from "./faults.ts";
import { allows, choose } from "./rights.ts";

/** The token of the mock. The real back end draws a new one at each start. */
const TOKEN = "mock";

async function backend(): Promise<Connect.NextHandleFunction> {
  // Generated code exists only after `npm run generate`, and a build needs none of this.
  const [{ connectNodeAdapter }, { Cluster }, { routes }, { failing, faults }, { begin }] = await Promise.all([
    import("@connectrpc/connect-node"),
    import("./cluster.ts"),
    import("./services.ts"),
    import("./faults.ts"),
    import("./pauses.ts"),
  ]);
  const cluster = new Cluster();
  setInterval(() => cluster.tick(), 500).unref();
  /** Lets so many objects of the storm go, each tenth of a second, until all are gone. */
  const blow = (objects: number) => {
    const timer = setInterval(() => cluster.blow(objects) === 0 && clearInterval(timer), 100).unref();
  };
  const services = connectNodeAdapter({
    routes: routes(cluster),
    grpc: false,
    connect: false,
    interceptors: [failing],
    fallback: (_, response) => {
      response.statusCode = 404;
      response.end();
    },
  });
  return (request, response, next) => {
    const { pathname: path, searchParams } = new URL(request.url ?? "/", "http://mock");
    if (path === "/console/mock") {
      for (const [name, value] of searchParams) {
        if (name === "storm") cluster.storm(Number(value));
        else if (name === "blow") blow(Number(value));
        else if (name === "rights") choose(value);
        else if (name === "fail") cluster.fail(Number(value));
        else if (name === "anew") cluster.anew(value);
        else if (name === "spoil") cluster.spoil(value);
        else if (name === "calm") cluster.calm();
        else if (name in faults) faults[name as keyof typeof faults] = value === "on";
      }
      return answer(response, 200, faults);
    }
    const isCall = path.startsWith("/ownergraph.");
    if (!isCall && !path.startsWith("/console/")) return next();
    // The real back end exchanges a ticket once.
    if (path === "/console/open" && !faults.expired && request.headers["x-ownergraph-token"] === TOKEN)
      return answer(response, 200, { token: TOKEN });
    if (faults.login && request.headers.authorization !== "Bearer of-alice") {
      response.setHeader("WWW-Authenticate", "Bearer");
      return answer(response, 401, { error: "the API server does not know the token" });
    }
    if (faults.expired || request.headers["x-ownergraph-token"] !== TOKEN)
      return answer(response, 401, { error: "the token is not valid" });
    if (faults.away) return answer(response, 503, {});
    if (isCall) return services(request, response);
    void read(request).then((body) => {
      if (path === "/console/guards/pause") answer(response, 200, begin(body as never));
      else if (path === "/console/status") {
        const [status, message] = cluster.status(body as never);
        answer(response, 200, { status, message });
      } else local(path, body, response, faults);
    });
  };
}

function local(path: string, body: Record<string, string>, response: ServerResponse, faults: Faults): void {
  switch (path) {
    case "/console/session":
      return answer(response, 200, {
        user: "alice@example.com",
        cluster: "mock",
        context: "mock",
        version: "0.1.0",
        canWrite: true,
        service: { address: "127.0.0.1:7070", mode: "service" },
        time: new Date(Date.now() + (faults.skew ? 3_600_000 : 0)).toISOString(),
      });
    case "/console/access":
      if (faults.review) return answer(response, 502, { error: "The API server does not answer." });
      return answer(response, 200, { allowed: allows(body), reason: "" });
    case "/console/events":
      return answer(response, 200, {
        events: [
          {
            type: "Warning",
            reason: "CollectionHeld",
            message: "held by protections/keys",
            count: 3,
            by: "ownergraph",
            time: new Date(Date.now() - 90_000).toISOString(),
          },
        ],
        more: false,
      });
    case "/console/delete":
      return body["digest"] === "1f6d08a22f7e9d0d"
        ? answer(response, 200, { accepted: true })
        : answer(response, 409, { error: "the plan has changed; nothing was deleted" });
    case "/console/guards/create":
      return created(body, response);
    default:
      return answer(response, 200, { name: "pauses/console-1" });
  }
}

/** Refuses a guard without a reason in the words of the API server. */
function created({ manifest = "" }: Record<string, string>, response: ServerResponse): void {
  const field = (name: string) => new RegExp(`^ *${name}: *(\\S.*)$`, "m").exec(manifest)?.[1] ?? "";
  const [kind, name] = [field("kind"), field("name")];
  if (!field("reason"))
    return answer(response, 502, {
      error: `${kind.toLowerCase()}/${name} was not created: ${kind}.ownergraph.dev "${name}" is invalid: spec.reason: Required value`,
    });
  answer(response, 200, { name: `${kind.toLowerCase()}s/${name}` });
}

async function read(request: IncomingMessage): Promise<Record<string, string>> {
  let text = "";
  for await (const part of request) text += part;
  return text === "" ? {} : (JSON.parse(text) as Record<string, string>);
}

function answer(response: ServerResponse, status: number, body: object): void {
  response.writeHead(status, { "Content-Type": "application/json" }).end(JSON.stringify(body));
}

export function mock(): Plugin {
  return {
    name: "mock",
    async configureServer(server) {
      server.middlewares.use(await backend());
    },
    async configurePreviewServer(server) {
      server.middlewares.use((_, response, next) => {
        response.setHeader("Content-Security-Policy", HEADER);
        next();
      });
      server.middlewares.use(await backend());
    },
  };
}
