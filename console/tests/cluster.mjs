// Opens a running console in a browser. `tests/tests/console.rs` makes the cluster, and gives the addresses and the
// token of the tenant.
//
// cluster: every page in both colour schemes, a deletion by keys alone, the guards of an operator, every page and a
// search of a tenant of one namespace, and a sign-in at a console that users share. `BLESS=1` keeps the pictures of the
// documentation in docs/images.
// sandbox: every page and the deletion, and every page of the sandbox's own console, which has no graph service.

import { mkdirSync } from "node:fs";
import { assert, check, finish, open, settled, shots, violations } from "./browser/chromium.mjs";

const [where, admin, ...others] = process.argv.slice(2);
const [operator, tenant, shared] = where === "cluster" ? others : [];
const own = where === "sandbox" ? others[0] : undefined;
const token = process.env["TENANT_TOKEN"];
if (!own && !(shared && token))
  throw new Error(
    "usage: TENANT_TOKEN=… cluster.mjs cluster ADDRESS OPERATOR TENANT SHARED, or sandbox ADDRESS OWN_ADDRESS",
  );
const images =
  shared && process.env["BLESS"] === "1" ? new URL("../../docs/images/", import.meta.url).pathname : undefined;
if (images) mkdirSync(images, { recursive: true });

const KEY = "ownergraph-token";
/** The tokens that pages have got for their addresses, which open one page each. */
const tokens = new Map();

/** A tab of one console. The first one opens the printed address, and the others get its token. */
async function visit(address, options) {
  const { origin } = new URL(address);
  const tab = await open(origin, options);
  // Other tests may run on the machine.
  tab.page.setDefaultTimeout(60_000);
  const known = tokens.get(origin);
  if (known) await tab.context.addInitScript(([key, token]) => localStorage.setItem(key, token), [KEY, known]);
  await tab.page.goto(known ? address.replace(/#.*/, "") : address);
  await tab.page.waitForSelector("main h1");
  tokens.set(origin, await tab.page.evaluate((key) => localStorage.getItem(key), KEY));
  const until = async (what, found) => {
    const said = () => tab.page.locator("main").innerText();
    await found.catch(async () => assert(false, `${what}: ${(await said()).slice(0, 800)}`));
  };
  const go = async (query) => {
    await tab.page.goto(`${origin}/${query}`);
    await until(`${query} never settles`, settled(tab.page));
  };
  const says = (text) => {
    const isThere = (text) => document.querySelector("main")?.innerText.includes(text);
    return until(`no “${text}”`, tab.page.waitForFunction(isThere, text));
  };
  return { ...tab, go, says, until };
}

const orders = "kind=ConfigMap&ns=shop&name=orders-0";
// Each page, and words that it has once the answer is there.
const PAGES = {
  overview: ["?page=overview", "by protections and annotations"],
  "object-graph": ["?page=object&kind=ConfigMap&ns=shop&name=release", "10 dependents"],
  "object-many": [`?page=object&${orders}`, "60 dependents"],
  "object-tree": [`?page=object&${orders}&view=tree&fold=no`, "orders-0-1"],
  "object-table": [`?page=object&${orders}&view=table`, "orders-0-1"],
  "object-timeline": [`?page=object&kind=ConfigMap&ns=bank&name=ledger-0-0&view=timeline`, "protections/bank"],
  plan: ["?page=plan&kind=ConfigMap&ns=shop&name=release", "11 of 11 objects"],
  cascade: [`?page=cascade&${orders}`, "of 60 objects"],
  decisions: ["?page=decisions", "ledger-0-0"],
  guards: ["?page=guards", "the ledger is audited"],
  stuck: ["?page=stuck&age=1s", "slow"],
  orphans: ["?page=orphans", "stray"],
  cycles: ["?page=cycles", "chicken"],
  parity: ["?page=parity", "compares nothing"],
};
/** The pictures that the documentation shows. */
const SHOWN = ["object-graph", "plan"];

/** The words of a console without a graph service, where they differ. */
const UNSERVED = "only a graph service has this";
const ALONE = {
  ...PAGES,
  overview: ["?page=overview", UNSERVED],
  "object-timeline": [PAGES["object-timeline"][0], UNSERVED],
  cascade: [`?page=cascade&${orders}`, "of 60 objects"],
  decisions: ["?page=decisions", UNSERVED],
  parity: ["?page=parity", UNSERVED],
};

/** The words of a tenant of one namespace, where they differ. */
const OF_TENANT = Object.fromEntries(
  Object.entries({
    ...PAGES,
    overview: ["?page=overview", "You may not list executors in all namespaces. Ask for the role ownergraph-operate"],
    "object-timeline": [`?page=object&${orders}&view=timeline`, "The log has no decision about this object"],
    decisions: ["?page=decisions", "doomed-0-"],
    guards: ["?page=guards", "Ask for the role ownergraph-operate, by a ClusterRoleBinding."],
    parity: ["?page=parity", "Ask for the role ownergraph-operate, by a ClusterRoleBinding."],
  }).map(([of, [query, words]]) => [of, [`${query}&in=shop`, words]]),
);

async function every(pages, address, scheme, name) {
  const { page, errors, go, says } = await visit(address, { colorScheme: scheme });
  for (const [of, [query, words]] of Object.entries(pages)) {
    await check(`${name}: ${of}, ${scheme}`, async () => {
      errors.length = 0;
      await go(query);
      await says(words);
      await page.screenshot({ path: `${shots}${name}-${of}-${scheme}.png` });
      const found = await violations(page);
      assert(found.length === 0, `axe-core: ${found.join("; ")}`);
      assert(errors.length === 0, errors.join("; "));
      if (images && name === where && scheme === "light" && SHOWN.includes(of)) {
        await page.screenshot({ path: `${images}console-${of}.png` });
      }
    });
  }
}

await every(PAGES, admin, "light", where);
if (own) await every(ALONE, own, "light", "alone");
else await every(PAGES, admin, "dark", where);

await check("the card of an object has the Event of the collector", async () => {
  const { page, errors, go } = await visit(admin);
  await go("?page=object&kind=ConfigMap&ns=shop&name=stray");
  await page.locator("g.box:has-text('stray')").click();
  const card = page.locator("section[aria-label^='Object ']");
  await card.locator("h3:text-is('Events') + p:has-text('OwnerRefInvalidNamespace')").waitFor();
  assert(errors.length === 0, errors.join("; "));
});

await check("keys alone lead from the first page to a confirmed deletion", async () => {
  const { page, errors, says, until } = await visit(admin);
  const { keyboard } = page;
  /** A new page takes the focus to its heading. */
  const arrived = () =>
    until(
      "the heading has no focus",
      page.waitForFunction(() => document.activeElement?.id === "title"),
    );
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
  await arrived();
  await focus("Plan a deletion");
  await keyboard.press("Enter");
  await says("4 of 4 objects");
  await arrived();
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
  await until(
    "the page of the cascade does not open",
    page.waitForFunction(() => location.search.includes("page=cascade")),
  );
  await says("doomed-0");
  await page.screenshot({ path: `${shots}${where}-deleted.png` });
  assert(errors.length === 0, errors.join("; "));
});

if (shared) {
  await check("an operator with the role of the chart creates guards of each kind and releases them", async () => {
    const { page, errors, go, says } = await visit(operator);
    const released = async (name) => {
      await page.click(`section[aria-label='${name}'] button:text-is('Release…')`);
      if (name.startsWith("gates/")) await page.getByLabel("Reason").fill("it is tried");
      await page.click("dialog button:text-is('Release')");
      await page.waitForSelector(`text=${name} is released.`);
    };
    await go("?page=guards");
    await says("the ledger is audited");
    await page.waitForSelector("text=New guard…");
    assert(!(await page.locator("main").innerText()).includes("You may not"), await page.locator("main").innerText());
    for (const [kind, name] of [
      ["Protection", "protections/prod-data"],
      ["Budget", "budgets/calm"],
      ["Approval", "approvals/data"],
      ["Gate", "gates/claims"],
    ]) {
      await page.click("text=New guard…");
      await page.selectOption("dialog select", kind);
      const area = page.locator("dialog textarea");
      const manifest = await area.inputValue();
      await area.fill(manifest.replace("spec:", "spec:\n  unknown: 1"));
      await page.click("dialog button:text-is('Check')");
      await page.waitForSelector("dialog >> text=unknown field");
      await area.fill(manifest);
      await page.click("dialog button:text-is('Check')");
      await page.waitForSelector(`dialog >> text=The API server accepts ${name}.`);
      await page.click("dialog button:text-is('Create')");
      await page.waitForSelector(`section[aria-label='${name}'].chosen`);
      if (kind !== "Approval") await released(name);
    }
    await page.waitForSelector("section[aria-label='protections/prod-data']", { state: "detached" });
    await says("it is tried");
    await page.click("text=Pause deletions…");
    await page.fill("dialog input[placeholder=all]", "shop");
    await page.getByLabel("Reason").fill("a look");
    await page.click("dialog button:text-is('Pause')");
    const pause = page.locator("section[aria-label^='pauses/']");
    const name = await pause.first().getAttribute("aria-label");
    await released(name);
    await page.screenshot({ path: `${shots}cluster-operator.png` });
    // Of the manifests that the API server refuses.
    const others = errors.filter((error) => !error.includes("status of 502"));
    assert(others.length === 0, others.join("; "));
  });

  await every(OF_TENANT, tenant, "light", "tenant");

  await check("a tenant finds an object by its type and name", async () => {
    const { page, go, says } = await visit(tenant);
    for (const typed of ["deploy/web", "ConfigMap orders-0"]) {
      await go("?page=stuck&age=1s&in=shop");
      await page.keyboard.press("/");
      await page.keyboard.type(typed);
      await page.keyboard.press("Enter");
      await page.waitForFunction((typed) => {
        const name = new URLSearchParams(location.search).get("name");
        return name && typed.endsWith(name);
      }, typed);
    }
    await page.keyboard.press("/");
    await page.fill("#search", "deploy/absent");
    await page.keyboard.press("Enter");
    await page.waitForSelector("text=There is no such object in shop.");
    await go("?page=overview&in=shop");
    await says("Plots");
    const text = await page.locator("body").innerText();
    assert(!/Waiting for|Choose a namespace/.test(text), text.slice(0, 800));
  });

  await check("a tenant sees one namespace, what is hidden, and no deletion", async () => {
    const { page, go, says } = await visit(tenant);
    await go(`?page=object&${orders}&in=shop&view=tree&fold=no`);
    await says("orders-0-1");
    await page.screenshot({ path: `${shots}cluster-tenant.png` });
    await go(`?page=plan&${orders}&in=shop`);
    await says("61 of 61 objects");
    assert((await page.locator("button:has-text('Delete…')").count()) === 0, "a tenant has a button to delete");
    await go("?page=object&kind=ConfigMap&ns=shop&name=parent&in=shop&view=tree");
    await says("child");
    await says("1 object is hidden: you may not see its namespace");
    await page.goto(`${new URL(tenant).origin}/?page=object&kind=ConfigMap&ns=bank&name=ledger-0-0`);
    await says("You may not get graphobjects in namespace bank.");
    const text = await page.locator("main").innerText();
    assert(!/dangling|protections/.test(text), `the page shows what a tenant must not see: ${text}`);
    await page.screenshot({ path: `${shots}cluster-tenant-refused.png` });
  });

  await check("a shared console shows nothing without a token, and with one what its user may see", async () => {
    const { page, go, says } = await visit(shared);
    const field = page.locator("input[type=password]");
    await field.waitFor();
    await go("?page=object&kind=ConfigMap&ns=shop&name=parent&in=shop").catch(() => {});
    assert(!(await page.locator("main").innerText()).includes("child"), "the page shows objects to an unknown user");
    const refused = page.waitForResponse((answer) => answer.status() === 401);
    await field.fill("not-a-token");
    await page.click("button:has-text('Sign in')");
    await refused;
    await field.waitFor();
    await field.fill(token);
    await page.click("button:has-text('Sign in')");
    await page.waitForSelector("input[type=password]", { state: "detached" });
    await go("?page=object&kind=ConfigMap&ns=shop&name=parent&in=shop&view=tree");
    await says("child");
    await page.screenshot({ path: `${shots}cluster-shared.png` });
    assert((await page.locator("body").innerText()).includes("as tenant"), "the page does not name its user");
  });
}

await finish();
