// Opens every page of the built console in a browser, over the mock: no error on the console of the browser, no request
// to another origin, no violation that axe-core finds, and a picture of each page in shots/. `npm run build` comes first.

import { existsSync, mkdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { chromium } from "playwright-core";
import { preview } from "vite";

const BROWSER = process.env["CHROMIUM"] ?? "/usr/bin/chromium";
if (!existsSync(BROWSER)) {
  console.log(`no browser at ${BROWSER}: nothing is tested`);
  process.exit(process.env["CI"] === "true" ? 1 : 0);
}
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const shots = new URL("../shots/", import.meta.url).pathname;
mkdirSync(shots, { recursive: true });

const server = await preview({ preview: { host: "127.0.0.1", port: 0 } });
const { port } = server.httpServer.address();
const origin = `http://127.0.0.1:${port}`;
const browser = await chromium.launch({ executablePath: BROWSER, args: ["--no-sandbox"] });
const failures = [];
let passed = 0;

async function check(name, run) {
  try {
    await run();
    passed += 1;
    console.log(`ok      ${name}`);
  } catch (error) {
    failures.push(name);
    console.log(`FAILED  ${name}: ${error.message}`);
  }
}
function assert(holds, words) {
  if (!holds) throw new Error(words);
}

async function open(options = {}) {
  const context = await browser.newContext({ viewport: { width: 1360, height: 900 }, bypassCSP: false, ...options });
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

/** What axe-core finds. It runs through the debugger, which the policy of the page does not concern. */
async function violations(page) {
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

const object = "kind=Database&group=example.com&ns=shop&name=orders";
const bulk = "kind=Archive&group=example.com&ns=bulk&name=everything";
const PAGES = {
  overview: "?page=overview",
  "object-graph": `?page=object&${object}`,
  "object-tree": `?page=object&${object}&view=tree`,
  "object-table": `?page=object&${object}&view=table`,
  "object-timeline": `?page=object&${object}&view=timeline`,
  "object-large": `?page=object&${bulk}&fold=no`,
  "object-web": "?page=object&kind=Deployment&ns=shop&name=web",
  plan: "?page=plan&kind=Deployment&ns=shop&name=web",
  cascade: `?page=cascade&${object}`,
  decisions: "?page=decisions",
  guards: "?page=guards",
  stuck: "?page=stuck",
  orphans: "?page=orphans",
  cycles: "?page=cycles",
  parity: "?page=parity",
};

for (const scheme of ["light", "dark"]) {
  const { context, page, errors } = await open({ colorScheme: scheme });
  for (const [name, query] of Object.entries(PAGES)) {
    await check(`${name}, ${scheme}`, async () => {
      errors.length = 0;
      await page.goto(`${origin}/${query}#token=mock`, { waitUntil: "load" });
      await page.reload();
      await page.waitForSelector("main h1");
      await page.waitForTimeout(1200);
      await page.screenshot({ path: `${shots}${name}-${scheme}.png` });
      assert(!page.url().includes("token"), "the token is in the address");
      const found = await violations(page);
      assert(found.length === 0, `axe-core: ${found.join("; ")}`);
      assert(errors.length === 0, errors.join("; "));
    });
  }
  await context.close();
}

const { page, errors } = await open({ permissions: ["clipboard-read", "clipboard-write"] });
const go = async (query) => {
  await page.goto(`${origin}/${query}#token=mock`);
  await page.reload();
  await page.waitForSelector("main h1");
};

await check("a large graph says what it shows, and is drawn soon", async () => {
  await go(PAGES["object-large"]);
  await page.waitForFunction(
    () => document.querySelector("main")?.innerText.includes("Showing 300 of 12,431"),
    undefined,
    { timeout: 15_000 },
  );
  console.log(`        ${await page.locator("text=/in .* boxes, laid out in/").innerText()}`);
});
await check("500 boxes of 12,431 objects are drawn soon", async () => {
  // The filter leaves more than 1,000 and less than 10,000 boxes.
  await go(`?page=object&${bulk}&fold=no&q=entry-00&view=table`);
  await page.waitForSelector("text=11,400 filtered", { timeout: 15_000 });
  const ms = await page.evaluate(async () => {
    const before = performance.now();
    [...document.querySelectorAll("main button")].find((button) => button.innerText.startsWith("Graph")).click();
    while (document.querySelectorAll("g.box").length < 500)
      await new Promise((resolve) => requestAnimationFrame(resolve));
    await new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
    return performance.now() - before;
  });
  console.log(`        ${ms.toFixed(0)} ms from the click to the painted picture`);
  assert((await page.locator("text=Showing 500 of 12,431").count()) === 1, "the picture does not say what it shows");
  assert(ms < 1500, `${ms} ms`);
});
await check("the tree table of 12,431 rows shows rows wherever it is scrolled", async () => {
  await go(`?page=object&${bulk}&view=tree&fold=no&open=all`);
  await page.waitForFunction(
    () => document.querySelector("[role=treegrid]")?.getAttribute("aria-rowcount") === "12432",
    undefined,
    { timeout: 15_000 },
  );
  for (const part of [0.1, 0.5, 0.99, 0.3]) {
    await page.evaluate((part) => {
      const grid = document.querySelector("[role=treegrid]");
      grid.scrollTop = grid.scrollHeight * part;
    }, part);
    // Before any frame of the page: the layer still has rows.
    const rows = await page.evaluate(() => document.querySelectorAll("[role=treegrid] [role=row]").length);
    assert(rows > 10, `${rows} rows at ${part}`);
  }
});
await check("the tree is walked by keys", async () => {
  await go("?page=object&kind=Deployment&ns=shop&name=web&view=tree");
  const grid = page.locator("[role=treegrid]");
  await page.waitForFunction(() => document.querySelectorAll("[role=treegrid] [role=row]").length > 5);
  await grid.focus();
  await page.keyboard.press("ArrowLeft");
  await page.waitForFunction(() => document.querySelectorAll("[role=treegrid] [role=row]").length === 2);
  await page.keyboard.press("ArrowRight");
  await page.keyboard.press("ArrowDown");
  const active = await grid.getAttribute("aria-activedescendant");
  assert((await page.locator(`[id="${active}"]`).getAttribute("aria-level")) === "2", "the second row is not active");
  await page.keyboard.press("Enter");
  await page.waitForFunction(() => !location.search.includes("name=web&"));
});
await check("the keys of views, help and search work", async () => {
  await go("?page=object&kind=Deployment&ns=shop&name=web");
  await page.locator("h1").focus();
  for (const [key, view] of [
    ["2", "tree"],
    ["3", "table"],
    ["4", "timeline"],
    ["1", "graph"],
  ]) {
    await page.keyboard.press(key);
    assert(page.url().includes(`view=${view}`), `${key} does not show ${view}`);
  }
  await page.keyboard.press("?");
  await page.waitForSelector("dialog[open]");
  const found = await violations(page);
  assert(found.length === 0, `axe-core: ${found.join("; ")}`);
  await page.keyboard.press("Escape");
  await page.waitForSelector("dialog[open]", { state: "detached" }).catch(() => {});
  await page.keyboard.press("/");
  await page.keyboard.type("2xk8q");
  await page.keyboard.press("Enter");
  await page.locator("[role=search] a").first().click();
  await page.waitForFunction(() => location.search.includes("web-7f9c-2xk8q"));
});
await check("a deletion needs the name", async () => {
  await go(PAGES.plan);
  await page.click("text=Delete…");
  const button = page.locator("dialog button.danger");
  assert(await button.isDisabled(), "the button is enabled at once");
  await page.screenshot({ path: `${shots}delete.png` });
  const found = await violations(page);
  assert(found.length === 0, `axe-core: ${found.join("; ")}`);
  await page.fill("dialog input[size='30']", "web");
  await button.click();
  await page.waitForFunction(() => location.search.includes("page=cascade"));
});
await check("a plot is exported", async () => {
  await go("?page=overview");
  await page.waitForTimeout(2500);
  for (const kind of ["SVG", "PNG", "CSV"]) {
    const [download] = await Promise.all([
      page.waitForEvent("download"),
      page.locator(`figure button:text-is("${kind}")`).nth(2).click(),
    ]);
    assert(download.suggestedFilename().endsWith(kind.toLowerCase()), download.suggestedFilename());
    await download.saveAs(`${shots}plot.${kind.toLowerCase()}`);
  }
});
await check("the command and the link are copied", async () => {
  await go("?page=object&kind=Deployment&ns=shop&name=web");
  await page.waitForFunction(() => location.search.includes("uid="));
  await page.click("text=Copy kubectl command");
  const command = await page.evaluate(() => navigator.clipboard.readText());
  assert(command === "kubectl ownergraph --context mock tree deployments.apps/web -n shop", command);
});
await check("a guard is approved", async () => {
  await go("?page=guards");
  await page.click("text=Approve…");
  await page.waitForSelector("dialog[open]");
  await page.click("dialog button.danger");
  await page.waitForSelector("text=is approved");
});
await check("decisions are shown as they are made", async () => {
  await go("?page=decisions");
  await page.waitForFunction(() => document.querySelectorAll("[role=grid] [role=row]").length > 10);
  const first = await page.locator("main p[role=status]").innerText();
  await page.waitForFunction((first) => document.querySelector("main p[role=status]")?.innerText !== first, first);
});
await check("the filters of decisions reach the service, and its error is shown", async () => {
  await go("?page=decisions");
  await page.fill("#cel", "nonsense == 1");
  await page.click("text=Apply");
  await page.waitForSelector("text=unknown variable nonsense");
});
await check("none of these is an error for the browser", () => assert(errors.length === 0, errors.join("; ")));
await check("a page keeps what it shows while the service is away, and comes back", async () => {
  await go("?page=object&kind=Deployment&ns=shop&name=web&view=tree");
  await page.waitForSelector("text=web-settings");
  await page.evaluate(() => fetch("/console/away"));
  await server.httpServer.closeAllConnections();
  await page.waitForSelector("text=/not live, .* old; next try/", { timeout: 15_000 });
  await page.screenshot({ path: `${shots}away.png` });
  assert(await page.isVisible("text=web-settings"), "the rows are gone");
  await page.evaluate(() => fetch("/console/away"));
  await page.waitForFunction(() => !document.body.innerText.includes("not live"), undefined, { timeout: 30_000 });
});
await check("a page without a valid token says so", async () => {
  const { page } = await open();
  await page.goto(`${origin}/#token=other`);
  await page.waitForSelector("text=The token of this page is not valid any more.");
  await page.screenshot({ path: `${shots}token.png` });
});

await browser.close();
await server.close();
console.log(`${passed} passed, ${failures.length} failed`);
process.exit(failures.length > 0 ? 1 : 0);
