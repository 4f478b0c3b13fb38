// The built console in Chromium over the mock, and what the checks share.

import { existsSync, mkdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { availableParallelism, loadavg } from "node:os";
import { chromium } from "playwright-core";
import { preview } from "vite";

export const BROWSER = process.env["CHROMIUM"] ?? "/usr/bin/chromium";
if (!existsSync(BROWSER)) {
  console.log(`no browser at ${BROWSER}: CHROMIUM names another one`);
  process.exit(1);
}
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
export const shots = new URL("../../shots/", import.meta.url).pathname;
mkdirSync(shots, { recursive: true });

const server = await preview({ preview: { host: "127.0.0.1", port: 0 } });
export const origin = `http://127.0.0.1:${server.httpServer.address().port}`;
let running;
const failures = [];
let passed = 0;

/** The browser of the checks. There is one at a time. */
export async function browser() {
  running ??= await chromium.launch({ executablePath: BROWSER, args: ["--no-sandbox"] });
  return running;
}
export async function closeBrowser() {
  await running?.close();
  running = undefined;
}

export async function check(name, run) {
  try {
    await run();
    passed += 1;
    console.log(`ok      ${name}`);
  } catch (error) {
    failures.push(name);
    console.log(`FAILED  ${name}: ${error.message}`);
  }
}
/** How many programs share a core: others make everything slower, so limits of times grow with them. */
export const busy = () => Math.max(1, loadavg()[0] / availableParallelism());
/** The least of some runs: other programs only add to a time. */
export async function least(rounds, run) {
  const times = [];
  for (let round = 0; round < rounds; round += 1) times.push(await run());
  return Math.min(...times);
}
export const measured = (words) => console.log(`        ${words}`);
export function assert(holds, words) {
  if (!holds) throw new Error(words);
}

/** Switches faults of the mock, and ends its streams so that they meet the fault. */
export async function mock(query, cutting = true) {
  const response = await fetch(`${origin}/console/mock?${query}`);
  assert(response.ok, `the mock answers ${response.status}`);
  if (cutting) server.httpServer.closeAllConnections();
}

export async function open(options = {}) {
  const context = await (
    await browser()
  ).newContext({
    viewport: { width: 1360, height: 900 },
    permissions: ["clipboard-read", "clipboard-write"],
    ...options,
  });
  const page = await context.newPage();
  const errors = [];
  page.on("console", (message) => message.type() === "error" && errors.push(message.text()));
  page.on("pageerror", (error) => errors.push(error.message));
  page.on("request", (request) => {
    const url = request.url();
    if (!url.startsWith(origin) && !url.startsWith("blob:") && !url.startsWith("data:"))
      errors.push(`request to ${url}`);
  });
  return { context, page, errors };
}

/** Shows a page, and waits until nothing in it is announced any more. */
export async function go(page, query) {
  await page.goto(`${origin}/${query}#token=mock`);
  await page.reload();
  await settled(page);
}
export const settled = (page) =>
  page.waitForFunction(() => {
    const main = document.querySelector("main");
    return main?.querySelector("h1") && !/\b(Loading|Reading|Planning|Waiting)\b[^\n]*…|so far/.test(main.innerText);
  });

/** What axe-core finds. It runs through the debugger, which the policy of the page does not concern. */
export async function violations(page) {
  await page.evaluate(axe);
  const { violations } = await page.evaluate(() =>
    globalThis.axe.run(document, { runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"] }),
  );
  return violations.map(
    ({ id, nodes }) =>
      `${id}: ${nodes
        .slice(0, 3)
        .map(({ html }) => html.slice(0, 160))
        .join(" | ")}`,
  );
}

export async function finish() {
  await closeBrowser();
  await server.close();
  console.log(`${passed} passed, ${failures.length} failed${failures.map((name) => `\n        ${name}`).join("")}`);
  process.exit(failures.length > 0 ? 1 : 0);
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
