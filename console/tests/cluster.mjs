// Opens a running console of a real cluster in a browser: every page in both colour schemes, a deletion by keys alone,
// and the view of a tenant of one namespace. `tests/tests/console.rs` makes the cluster, and gives the two addresses.
// `BLESS=1` keeps the pictures of the documentation in docs/images.

import { mkdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { chromium } from "playwright-core";

const [admin, tenant] = process.argv.slice(2);
if (!tenant) throw new Error("usage: cluster.mjs ADDRESS ADDRESS_OF_TENANT");
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const at = (path) => new URL(path, import.meta.url).pathname;
const [shots, images] = [at("../shots/"), process.env["BLESS"] === "1" ? at("../../docs/images/") : undefined];
for (const directory of [shots, images]) if (directory) mkdirSync(directory, { recursive: true });
const browser = await chromium.launch({ executablePath: "/usr/bin/chromium", args: ["--no-sandbox"] });
const failures = [];

async function check(name, run) {
  try {
    await run();
    console.log(`ok      ${name}`);
  } catch (error) {
    failures.push(name);
    console.log(`FAILED  ${name}: ${error.message}`);
  }
}
function assert(holds, words) {
  if (!holds) throw new Error(words);
}

/** A page of one console. The first address carries the token, which the page then keeps for its tab. */
async function open(address, colorScheme = "light") {
  const { origin } = new URL(address);
  const context = await browser.newContext({ viewport: { width: 1360, height: 900 }, colorScheme });
  const page = await context.newPage();
  const errors = [];
  page.on("console", (message) => message.type() === "error" && errors.push(message.text()));
  page.on("pageerror", (error) => errors.push(error.message));
  page.on("request", (request) => {
    const url = request.url();
    if (![origin, "blob:", "data:"].some((own) => url.startsWith(own))) errors.push(`request to ${url}`);
  });
  await page.goto(address);
  await page.waitForSelector("main h1");
  const go = async (query) => {
    await page.goto(`${origin}/${query}`);
    await page.waitForSelector("main h1");
  };
  const says = (text) =>
    page.waitForFunction((text) => document.querySelector("main")?.innerText.includes(text), text, { timeout: 20_000 });
  return { page, errors, go, says };
}

async function violations(page) {
  await page.evaluate(axe);
  const { violations } = await page.evaluate(() =>
    globalThis.axe.run(document, { runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"] }),
  );
  return violations.map(({ id, nodes }) => `${id}: ${nodes[0]?.html.slice(0, 160)}`);
}

const orders = "kind=ConfigMap&ns=shop&name=orders-0";
// Each page, and words that it has once the answer is there.
const PAGES = {
  overview: ["?page=overview", "Backlog"],
  "object-graph": [`?page=object&${orders}`, "orders-0"],
  "object-tree": [`?page=object&${orders}&view=tree&fold=no`, "orders-0-1"],
  "object-table": [`?page=object&${orders}&view=table`, "orders-0-1"],
  "object-timeline": [`?page=object&kind=ConfigMap&ns=bank&name=ledger-0-0&view=timeline`, "ledger-0-0"],
  plan: [`?page=plan&${orders}`, "61"],
  cascade: [`?page=cascade&${orders}`, "orders-0"],
  decisions: ["?page=decisions", "ledger-0-0"],
  guards: ["?page=guards", "the ledger is audited"],
  stuck: ["?page=stuck", "slow"],
  orphans: ["?page=orphans", "stray"],
  cycles: ["?page=cycles", "chicken"],
  parity: ["?page=parity", "observe"],
};
/** The pictures that the documentation shows. */
const SHOWN = ["overview", "object-graph", "plan"];

for (const scheme of ["light", "dark"]) {
  const { page, errors, go, says } = await open(admin, scheme);
  for (const [name, [query, words]] of Object.entries(PAGES)) {
    await check(`${name}, ${scheme}`, async () => {
      errors.length = 0;
      await go(query);
      await says(words);
      await page.screenshot({ path: `${shots}cluster-${name}-${scheme}.png` });
      const found = await violations(page);
      assert(found.length === 0, `axe-core: ${found.join("; ")}`);
      assert(errors.length === 0, errors.join("; "));
      if (images && scheme === "light" && SHOWN.includes(name)) {
        await page.screenshot({ path: `${images}console-${name}.png` });
      }
    });
  }
}

await check("keys alone lead from the first page to a confirmed deletion", async () => {
  const { page, errors, says } = await open(admin);
  const { keyboard } = page;
  const focus = async (words) => {
    for (let tabs = 0; tabs < 60; tabs += 1) {
      await keyboard.press("Tab");
      const at = await page.evaluate(() => document.activeElement?.textContent ?? "");
      if (at.trim().startsWith(words)) return;
    }
    throw new Error(`no Tab leads to ${words}`);
  };
  await keyboard.press("/");
  await keyboard.type("configmap/doomed-0 -n shop");
  await keyboard.press("Enter");
  await says("doomed-0");
  await focus("Plan a deletion");
  await keyboard.press("Enter");
  await says("4");
  await page.waitForSelector("button:has-text('Delete…')");
  await focus("Delete…");
  await keyboard.press("Enter");
  await page.waitForSelector("dialog[open] code");
  for (let tabs = 0; tabs < 20; tabs += 1) {
    if (await page.evaluate(() => document.activeElement?.matches("input[autocomplete=off]"))) break;
    await keyboard.press("Tab");
  }
  await keyboard.type("doomed-0");
  await keyboard.press("Enter");
  await page.waitForFunction(() => location.search.includes("page=cascade"), undefined, { timeout: 20_000 });
  await says("doomed-0");
  await page.screenshot({ path: `${shots}cluster-deleted.png` });
  assert(errors.length === 0, errors.join("; "));
});

await check("a tenant sees one namespace, what is hidden, and no deletion", async () => {
  const { page, go, says } = await open(tenant);
  await go(`?page=object&${orders}&in=shop&view=tree&fold=no`);
  await says("orders-0-1");
  await page.screenshot({ path: `${shots}cluster-tenant.png` });
  await go(`?page=plan&${orders}&in=shop`);
  await says("61");
  assert((await page.locator("button:has-text('Delete…')").count()) === 0, "a tenant has a button to delete");
  await go("?page=object&kind=ConfigMap&ns=shop&name=stray&in=shop");
  await says("hidden");
  await go("?page=object&kind=ConfigMap&ns=bank&name=ledger-0-0");
  await page.waitForSelector("[role=alert]");
  const text = await page.locator("main").innerText();
  assert(!text.includes("audited"), "the page shows what a tenant must not see");
  await page.screenshot({ path: `${shots}cluster-tenant-refused.png` });
});

await browser.close();
console.log(failures.length === 0 ? "all passed" : `failed: ${failures.join(", ")}`);
process.exit(failures.length === 0 ? 0 : 1);
