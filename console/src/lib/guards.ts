// What people do with guards: the rights that it takes, and what a new guard looks like.

import { mayI } from "./backend.ts";

export const GROUP = "ownergraph.dev";
/** Maximum number of guards whose names are asked about. */
const NAMED_MAX = 50;

/**
 * The verbs for the release of one guard, by its resource. The graph service ends pauses and bypasses gates for callers
 * that may update them. The back end reads the others at the API server, and then changes or deletes them.
 */
export const RELEASE: Record<string, string[]> = {
  pauses: ["update"],
  protections: ["get", "delete"],
  gates: ["update"],
  budgets: ["get", "patch"],
};
export const APPROVE = ["get", "patch"];

/** The kinds that a person writes, with an example of each. */
export const KINDS = [
  {
    kind: "Protection",
    resource: "protections",
    words: "The collector deletes nothing in its scope until you release it.",
    example: `  name: prod-data
spec:
  reason: data stays
  scope:
    targets:
      - resources:
          - resource: persistentvolumeclaims
        namespaces:
          - prod
`,
  },
  {
    kind: "Budget",
    resource: "budgets",
    words: "In each window, the collector deletes at most maxObjects objects of its scope.",
    example: `  name: calm
spec:
  reason: no surprises
  maxObjects: 500
  windowSeconds: 600
  onExceeded: Hold
`,
  },
  {
    kind: "Approval",
    resource: "approvals",
    words: "Large cascades, and those with an object of its resources, wait for a person.",
    example: `  name: data
spec:
  reason: A person looks at cascades that are large or contain data.
  moreThan: 500
  resources:
    - resource: persistentvolumeclaims
`,
  },
  {
    kind: "Gate",
    resource: "gates",
    words: "A policy decides about each deletion in its scope.",
    example: `  name: claims
spec:
  reason: no claim goes without a person
  cel:
    expression: 'object.resource != "persistentvolumeclaims" ? "allow" : "hold"'
  failurePolicy: Hold
  maxHoldSeconds: 3600
  afterMaxHold: Deny
`,
  },
].map((one) => ({
  ...one,
  example: `apiVersion: ${GROUP}/v1alpha1\nkind: ${one.kind}\nmetadata:\n${one.example}`,
}));

/** What the caller may do: `VERB RESOURCE`, and `VERB RESOURCE/NAME` where a role names single guards. */
export type Rights = ReadonlySet<string>;

/** Asks the API server about the rights that the actions on these guards take. */
export async function rightsOf(guards: string[]): Promise<Rights> {
  const verbs = [
    ...Object.entries({ ...RELEASE, approvals: APPROVE }).flatMap(([resource, verbs]) =>
      verbs.map((verb) => [verb, resource] as const),
    ),
    ...KINDS.map(({ resource }) => ["create", resource] as const),
  ];
  const rights = await granted(verbs);
  for (const guard of guards.slice(0, NAMED_MAX)) {
    const [resource = "", name = ""] = guard.split("/");
    // The end of a pause takes the right for all of them.
    if (resource === "pauses") continue;
    for (const verb of resource === "approvals" ? APPROVE : (RELEASE[resource] ?? []))
      if (!rights.has(word(verb, resource))) await ask(rights, verb, resource, name);
  }
  return rights;
}

/** Asks about rights for all guards of their kinds. */
export async function granted(verbs: (readonly [verb: string, resource: string])[]): Promise<Set<string>> {
  const rights = new Set<string>();
  await Promise.all(verbs.map(([verb, resource]) => ask(rights, verb, resource)));
  return rights;
}

async function ask(rights: Set<string>, verb: string, resource: string, name = ""): Promise<void> {
  if ((await mayI(verb, GROUP, resource, "", name)).allowed) rights.add(word(verb, resource, name));
}

const word = (verb: string, resource: string, name = "") => `${verb} ${resource}${name && `/${name}`}`;

/** Why the caller may not do something, in words; empty if it may, and undefined while that is not known. */
export function refusal(rights: Rights | undefined, what: string, verbs: string[], guard: string): string | undefined {
  if (!rights) return undefined;
  const resource = guard.split("/")[0]!;
  const verb = verbs.find((verb) => !rights.has(word(verb, resource)) && !rights.has(`${verb} ${guard}`));
  return verb ? `You may not ${what} (${verb} ${resource}.${GROUP}).` : "";
}
