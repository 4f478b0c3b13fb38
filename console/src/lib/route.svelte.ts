// The address of the page is its state.

import { changed, pageOf, subject } from "./query.ts";

/** Firefox and Safari refuse an address that changes more than 100 times in ten seconds, as it does under a held key. */
const REST_MS = 200;

class Route {
  query = $state.raw(new URLSearchParams(location.search));
  /** No `$derived`: the page that is shown would be made anew, without its focus, when the page completes its address. */
  page = $state(pageOf(this.query));
  /** Changes with each visit and with the subject of the page, and not with what the page itself learns about it. */
  key = $state(0);
  /** What the address bar has. */
  #written = location.search;
  /** Runs while the address bar does not have the query yet. */
  #timer: ReturnType<typeof setTimeout> | undefined;

  get(name: string): string {
    return this.query.get(name) ?? "";
  }

  /** Changes parameters. A `step` is a place that the button Back returns to. */
  set(changes: Record<string, string | undefined>, step = false): void {
    const next = changed(this.query, changes);
    if (step) return this.go(`?${next}`);
    if (subject(next) !== subject(this.query)) this.key += 1;
    this.#change(next);
  }

  /** Completes the name of the subject: the same page goes on under this address. */
  adopt(changes: Record<string, string>): void {
    this.#change(changed(this.query, changes));
  }

  /** Visits an address, also one of the page that is shown: a name may belong to another object by now. */
  go(href: string): void {
    this.flush();
    history.pushState(null, "", href);
    this.#visit();
  }

  /** Takes the place that the browser has gone to. A place that differs in its fragment alone is the same one. */
  arrive(): void {
    if (location.search === this.#written) return;
    // The query that was not written belongs to the place before.
    this.#rest();
    this.#visit();
  }

  /** Writes the query into the address bar. */
  flush(): void {
    if (this.#timer === undefined) return;
    this.#rest();
    history.replaceState(null, "", `?${this.query}`);
    this.#written = location.search;
  }

  /** The address of a page for which nothing but the scope stays. */
  href(page: string, more: Record<string, string | undefined> = {}): string {
    return `?${changed(new URLSearchParams(), { page, in: this.get("in"), cluster: this.get("cluster"), ...more })}`;
  }

  #visit(): void {
    this.#written = location.search;
    this.query = new URLSearchParams(location.search);
    this.page = pageOf(this.query);
    this.key += 1;
  }

  #change(next: URLSearchParams): void {
    this.query = next;
    this.page = pageOf(next);
    this.#rest();
    this.#timer = setTimeout(() => this.flush(), REST_MS);
  }

  #rest(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
  }
}

export const route = new Route();

addEventListener("popstate", () => route.arrive());
addEventListener("pagehide", () => route.flush());
document.addEventListener("click", (event) => {
  const link = (event.target as Element).closest?.("a");
  const plain = event.button === 0 && !event.ctrlKey && !event.metaKey && !event.shiftKey && !event.altKey;
  if (!plain || event.defaultPrevented || !link?.getAttribute("href")?.startsWith("?")) return;
  event.preventDefault();
  route.go(link.getAttribute("href")!);
});
