// The built console over the mock.

import { preview } from "vite";
import * as chromium from "./chromium.mjs";

export * from "./chromium.mjs";
const { assert, settled } = chromium;

const server = await preview({ preview: { host: "127.0.0.1", port: 0 } });
export const origin = `http://127.0.0.1:${server.httpServer.address().port}`;
/** A new tab for pages of the mock. */
export const open = (options = {}) => chromium.open(origin, options);

/** Switches faults of the mock, and ends its streams so that they meet the fault. */
export async function mock(query, cutting = true) {
  const response = await fetch(`${origin}/console/mock?${query}`);
  assert(response.ok, `the mock answers ${response.status}`);
  if (cutting) server.httpServer.closeAllConnections();
}

/** Shows a page, and waits until nothing in it is announced any more. */
export async function go(page, query) {
  // From another document: an address that differs in its fragment alone loads nothing.
  await page.goto("about:blank");
  await page.goto(`${origin}/${query}#token=mock`);
  await settled(page);
}

/** Notes where the numbers of a cascade that only grow, those of all objects and of the deleted ones, fall. */
export async function watchTotals(page) {
  await page.evaluate(() => {
    const falls = (globalThis.falls_ = []);
    const most = new Map();
    const look = () => {
      for (const place of [".figure.tone-wait + .dim", ".figure.tone-ok"]) {
        const text = document.querySelector(`main ${place}`)?.textContent ?? "";
        const now = Number(/[\d,]+/.exec(text)?.[0].replaceAll(",", ""));
        if (now < (most.get(place) ?? 0)) falls.push(`${text.trim()} after ${most.get(place)}`);
        most.set(place, Math.max(now, most.get(place) ?? 0));
      }
    };
    new MutationObserver(look).observe(document.querySelector("main"), { subtree: true, characterData: true });
  });
  return () => page.evaluate(() => globalThis.falls_);
}
/** Ends the server of the pages, and the run. */
export async function finish() {
  await chromium.closeBrowser();
  await server.close();
  await chromium.finish();
}

const object = "kind=Database&group=example.com&ns=shop&name=orders";
export const BULK = "kind=Archive&group=example.com&ns=bulk&name=everything";
export const WEB = "kind=Deployment&ns=shop&name=web";
export const PAGES = {
  overview: "?page=overview",
  "object-graph": `?page=object&${object}`,
  "object-tree": `?page=object&${object}&view=tree`,
  "object-table": `?page=object&${object}&view=table`,
  "object-timeline": `?page=object&${object}&view=timeline`,
  "object-large": `?page=object&${BULK}&fold=no`,
  "object-web": `?page=object&${WEB}`,
  "object-ring": "?page=object&kind=ConfigMap&ns=ring&name=a",
  plan: `?page=plan&${WEB}`,
  cascade: `?page=cascade&${object}`,
  decisions: "?page=decisions",
  guards: "?page=guards",
  stuck: "?page=stuck",
  orphans: "?page=orphans",
  cycles: "?page=cycles",
  parity: "?page=parity",
};
