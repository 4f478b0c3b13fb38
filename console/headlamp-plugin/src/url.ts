/** What an address of the console needs to know of an object. */
export interface Named {
  kind: string;
  group: string;
  metadata: { name: string; namespace?: string; uid?: string };
}

/** The address of an object in the console; undefined without an address of the console. */
export function consoleUrl(address: string | undefined, page: string, { kind, group, metadata }: Named) {
  let url: URL;
  try {
    url = new URL(address ?? "");
  } catch {
    return undefined;
  }
  // A link must not run a script, whatever the settings hold.
  if (url.protocol !== "http:" && url.protocol !== "https:") return undefined;
  const query = { page, kind, group, ns: metadata.namespace, name: metadata.name, uid: metadata.uid };
  for (const [name, value] of Object.entries(query)) if (value) url.searchParams.set(name, value);
  // The ticket stays in the fragment: the first tab needs it, and its token is then that of all tabs.
  return url.href;
}
