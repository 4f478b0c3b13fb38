// Calls of the back end, and what lets this page make them: on the own machine a token that no other page has, and in a
// cluster the token of the user.

import type { ObjectRef } from "../generated/ownergraph/type/v1beta1/type_pb.ts";
import type { Owner } from "./pauses.ts";
import type { Status } from "./words.ts";

const KEY = "ownergraph-token";
const USER_KEY = "ownergraph-user-token";
/** The back end itself ends each action in less. */
const TIMEOUT_MS = 90_000;

export interface Session {
  user: string;
  cluster: string;
  context: string;
  version: string;
  /** False if the back end was started to read only. */
  canWrite: boolean;
  /** Each request carries the token of its user: the console runs in a cluster. */
  login?: boolean;
  /** How the back end reaches the graph: `service`, `direct` without one, `snapshot` of a file, or `unreachable`. */
  service: { address: string; mode: string; error?: string };
  /** The clock of the API server in RFC 3339, if the back end knows it. */
  time?: string;
}

export interface Deletion {
  group: string;
  version: string;
  resource: string;
  namespace: string;
  name: string;
  uid: string;
  policy: "Background" | "Foreground" | "Orphan";
  digest: string;
}

export interface NewPause {
  namespaces: string[];
  kinds: string[];
  /** This object and all objects below it. */
  owner?: Owner;
  reason: string;
  lifetimeSeconds: number;
}

const ticketOf = () => new URLSearchParams(location.hash.slice(1)).get("token");

/**
 * Exchanges the ticket of the address for a token. A ticket is valid once, and a reader opens many tabs: all tabs of the
 * origin share the token. It is worth nothing once the program has ended.
 */
export async function takeToken(): Promise<void> {
  const ticket = ticketOf();
  if (ticket === null) return;
  history.replaceState(null, "", location.pathname + location.search);
  const signal = AbortSignal.timeout(TIMEOUT_MS);
  const headers = { "X-Ownergraph-Token": ticket };
  const response = await fetch("/console/open", { method: "POST", headers, signal }).catch(() => undefined);
  const answer: unknown = response?.ok ? await response.json().catch(() => undefined) : undefined;
  const token = (answer as { token?: string } | undefined)?.token;
  // Without one, the token of another tab is valid, or each call says why the page may not ask.
  if (token) localStorage.setItem(KEY, token);
}

/** An address that is pasted into this tab may differ in its ticket alone: the browser then loads nothing by itself. */
export function followTickets(): void {
  addEventListener("hashchange", () => ticketOf() !== null && location.reload());
}

/** Calls `run` when another tab has got a token, which this one shares. The returned function ends it. */
export function onToken(run: () => void): () => void {
  const stored = ({ key, newValue }: StorageEvent) => {
    if (key === KEY && newValue !== null) run();
  };
  addEventListener("storage", stored);
  return () => removeEventListener("storage", stored);
}

/** The headers that let a call pass. A proxy before the console may set the token of the user instead. */
export function credentials(): Record<string, string> {
  const [own, user] = [localStorage.getItem(KEY), sessionStorage.getItem(USER_KEY)];
  return { ...(own && { "X-Ownergraph-Token": own }), ...(user && { Authorization: `Bearer ${user}` }) };
}

let login = false;
/** Whether the back end takes the token of a user. */
export const takesLogin = (): boolean => login;

let direct = false;
/** Whether the back end found no graph service, and lists the cluster itself. */
export const listsItself = (): boolean => direct;

/** Whether a header can carry this token. A copied token can have invisible characters. */
export const isToken = (text: string): boolean => /^[\x21-\x7e]+$/.test(text);

/** Keeps the token of the user for this tab. */
export function signIn(user: string): void {
  sessionStorage.setItem(USER_KEY, user);
  location.reload();
}

export class BackendError extends Error {
  constructor(
    message: string,
    readonly status: number,
  ) {
    super(message);
  }
}

async function call<T>(path: string, body?: unknown, aborted?: AbortSignal): Promise<T> {
  const headers = credentials();
  const own = headers["X-Ownergraph-Token"];
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const method = body === undefined ? "GET" : "POST";
  let response: Response;
  try {
    const timeout = AbortSignal.timeout(TIMEOUT_MS);
    const signal = aborted ? AbortSignal.any([timeout, aborted]) : timeout;
    response = await fetch(path, { method, headers, body: body === undefined ? null : JSON.stringify(body), signal });
  } catch {
    const doubt = body === undefined ? "" : " It is not known whether the action was carried out.";
    throw new BackendError(`The console's back end does not answer.${doubt}`, 0);
  }
  login ||= response.headers.get("WWW-Authenticate")?.startsWith("Bearer") ?? false;
  // A newer one, of another tab, stays. A console that asks for the token of its user does not look at this one.
  if (response.status === 401 && !login && own && own === localStorage.getItem(KEY)) localStorage.removeItem(KEY);
  const answer: unknown = await response.json().catch(() => null);
  const error = (answer as { error?: string } | null)?.error;
  if (!response.ok || error)
    throw new BackendError(error ?? `The back end answers ${response.status}.`, response.status);
  return answer as T;
}

export async function session(): Promise<Session> {
  const answer = await call<Session>("/console/session");
  login ||= answer.login ?? false;
  direct = answer.service.mode === "direct";
  return answer;
}
/** A Kubernetes Event about an object. */
export interface Happened {
  type: string | null;
  reason: string | null;
  message: string | null;
  count: number;
  by: string | null;
  /** In RFC 3339. */
  time: string | null;
}
export const events = ({ namespace, uid }: { namespace: string; uid: string }, signal: AbortSignal) =>
  call<{ events: Happened[]; more: boolean }>("/console/events", { namespace, uid }, signal);
/** The status of an object by kstatus, and why it is not current. */
export const status = ({ group, version, resource, namespace, name, uid }: ObjectRef, signal: AbortSignal) =>
  call<{ status: Status; message: string }>(
    "/console/status",
    { group, version, resource, namespace, name, uid },
    signal,
  );
export const mayI = (verb: string, group: string, resource: string, namespace: string, name: string) =>
  call<{ allowed: boolean; reason: string }>("/console/access", { verb, group, resource, namespace, name });
export const remove = (deletion: Deletion) => call<{ accepted: boolean }>("/console/delete", deletion);
export const createPause = (pause: NewPause) => call<{ name: string }>("/console/guards/pause", pause);
/** Creates the guard of a manifest, in YAML or JSON. In a dry run the API server only checks it. */
export const createGuard = (manifest: string, dryRun: boolean) =>
  call<{ name: string }>("/console/guards/create", { manifest, dryRun });
/** A gate is bypassed for a time; all other guards end, and a budget begins a new window. */
export const releaseGuard = (name: string, bypass: { lifetimeSeconds: number; reason: string } | undefined) =>
  call<object>("/console/guards/release", { name, ...bypass });
export const approveCascade = (approval: string, root: object, digest: string) =>
  call<object>("/console/guards/approve", { approval, root, digest });
