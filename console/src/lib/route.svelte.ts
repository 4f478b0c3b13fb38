// The address of the page is its state.

import { changed, pageOf, subject } from "./query.ts";

class Route {
  query = $state.raw(new URLSearchParams(location.search));
  page = $derived(pageOf(this.query));
  #adopted = $state.raw<{ from: string; to: string }>();
  /** Changes with the subject of the page, and not with what the page itself learns about it. */
  key = $derived.by(() => {
    const now = subject(this.query);
    return now === this.#adopted?.to ? this.#adopted.from : now;
  });

  get(name: string): string {
    return this.query.get(name) ?? "";
  }

  /** Changes parameters. A `step` is a place that the button Back returns to. */
  set(changes: Record<string, string | undefined>, step = false): void {
    this.go(`?${changed(this.query, changes)}`, step);
  }

  /** Completes the name of the subject: the same page goes on under this address. */
  adopt(changes: Record<string, string>): void {
    const next = changed(this.query, changes);
    this.#adopted = { from: this.key, to: subject(next) };
    this.go(`?${next}`, false);
  }

  go(href: string, step = true): void {
    if (step) history.pushState(null, "", href);
    else history.replaceState(null, "", href);
    this.query = new URLSearchParams(new URL(href, location.href).search);
  }

  /** The address of a page for which nothing but the scope stays. */
  href(page: string, more: Record<string, string | undefined> = {}): string {
    return `?${changed(new URLSearchParams(), { page, in: this.get("in"), cluster: this.get("cluster"), ...more })}`;
  }
}

export const route = new Route();

addEventListener("popstate", () => (route.query = new URLSearchParams(location.search)));
document.addEventListener("click", (event) => {
  const link = (event.target as Element).closest?.("a");
  const plain = event.button === 0 && !event.ctrlKey && !event.metaKey && !event.shiftKey && !event.altKey;
  if (!plain || event.defaultPrevented || !link?.getAttribute("href")?.startsWith("?")) return;
  event.preventDefault();
  route.go(link.getAttribute("href")!);
});
