// A page in Chromium, and what all checks share.

import { existsSync, mkdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { chromium } from "playwright-core";

export const BROWSER = process.env["CHROMIUM"] ?? "/usr/bin/chromium";
if (!existsSync(BROWSER)) {
  console.log(`no browser at ${BROWSER}: CHROMIUM names another one`);
  process.exit(1);
}
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
export const shots = new URL("../../shots/", import.meta.url).pathname;
mkdirSync(shots, { recursive: true });

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
export const measured = (words) => console.log(`        ${words}`);
export function assert(holds, words) {
  if (!holds) throw new Error(words);
}

/** A new tab for pages of this origin. Its errors are those of the browser, and requests to other origins. */
export async function open(origin, options = {}) {
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

/** Waits until nothing in the page is announced any more. */
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

/** Ends the run. Its exit code says whether all checks have passed. */
export async function finish() {
  await closeBrowser();
  console.log(`${passed} passed, ${failures.length} failed${failures.map((name) => `\n        ${name}`).join("")}`);
  process.exit(failures.length > 0 ? 1 : 0);
}
