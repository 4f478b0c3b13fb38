// What readers do with the pages.

import { readFile } from "node:fs/promises";
import { assert, BULK, check, go as show, mock, open, PAGES, settled, shots, violations, WEB } from "./harness.mjs";

const { context, page, errors } = await open();
const go = (query) => show(page, query);

await check("the tree is walked by keys", async () => {
  await go(`?page=object&${WEB}&view=tree`);
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
  await go(`?page=object&${WEB}`);
  await page.locator("h1").focus();
  for (const [key, view] of [
    ["2", "tree"],
    ["3", "table"],
    ["4", "timeline"],
    ["1", "graph"],
  ]) {
    await page.keyboard.press(key);
    await page.waitForFunction((view) => location.search.includes(`view=${view}`), view);
  }
  await page.keyboard.press("?");
  await page.waitForSelector("dialog[open]");
  const found = await violations(page);
  assert(found.length === 0, `axe-core: ${found.join("; ")}`);
  await page.keyboard.press("Escape");
  await page.waitForFunction(() => document.querySelector("dialog[open]") === null);
  await page.keyboard.press("/");
  await page.keyboard.type("2xk8q");
  await page.keyboard.press("Enter");
  await page.locator("[role=search] a").first().click();
  await page.waitForFunction(() => location.search.includes("web-7f9c-2xk8q"));
  await page.waitForFunction(() => document.querySelector("[role=search] a") === null);
});
await check("a frame that comes late leaves the focus where the reader has moved it", async () => {
  await go("?page=stuck");
  await page.evaluate(() => {
    window.late = [];
    window.requestAnimationFrame = (run) => window.late.push(run);
  });
  const focused = () => page.evaluate(() => document.activeElement.outerHTML);
  await page.focus("nav a:text-is('Decisions')");
  await page.keyboard.press("Enter");
  await page.waitForFunction(() => document.activeElement?.id === "title", undefined, { polling: 20 });
  await page.keyboard.press("Tab");
  const chosen = await focused();
  const frames = await page.evaluate(() => window.late.splice(0).map((run) => run(performance.now())).length);
  assert(frames > 0, "no frame was asked for");
  assert((await focused()) === chosen, `the focus is on ${await focused()}, and not on ${chosen}`);
});
await check("a page goes on when its address learns the uid", async () => {
  await go("?page=overview");
  await page.evaluate(() => {
    window.titles = 0;
    const count = (node) => (window.titles += node.querySelector?.("#title") ? 1 : 0);
    const look = (records) => records.forEach(({ addedNodes }) => addedNodes.forEach(count));
    new MutationObserver(look).observe(document.querySelector("main"), { childList: true });
  });
  await page.fill("#search", "deployments/web -n shop");
  await page.keyboard.press("Enter");
  await page.waitForFunction(() => location.search.includes("uid="));
  const titles = await page.evaluate(() => window.titles);
  assert(titles === 1, `the page was made ${titles} times`);
});
await check("a search takes any kind of the cluster, and looks into each namespace of the scope", async () => {
  const search = async (typed, query) => {
    await go(query);
    await page.fill("#search", typed);
    await page.keyboard.press("Enter");
  };
  for (const [typed, found] of [
    ["statefulsets/orders-primary -n shop", "orders-primary"],
    ["Archive everything -n bulk", "everything"],
  ]) {
    await search(typed, PAGES.guards);
    await page.waitForSelector(`main h1 >> text=${found}`);
    await page.waitForSelector("main [aria-label=View]");
  }
  await search("deploy/web", "?page=guards&in=billing,shop");
  await page.waitForFunction(() => location.search.includes("ns=shop"));
  await search("deploy/absent", "?page=guards&in=billing,shop");
  await page.waitForSelector("text=There is no such object in billing or shop.");
  await search("nonsense/web", PAGES.guards);
  await page.waitForSelector("text=The cluster serves no such kind.");
});
await check("an address by name becomes one by uid, on the same page", async () => {
  await page.goto(`${page.url().split("?")[0]}?page=object&${WEB}&view=tree`);
  await page.waitForSelector("[role=treegrid]");
  await page.evaluate(() => (document.querySelector("main h1").dataset.same = "yes"));
  await page.waitForFunction(() => location.search.includes("uid="));
  assert((await page.locator("h1[data-same=yes]").count()) === 1, "the page was made anew");
});
await check("a search for a name shows the object that has it now", async () => {
  let before = null;
  const search = async () => {
    await page.fill("#search", "pods/reborn -n shop");
    await page.keyboard.press("Enter");
    await page.waitForFunction((before) => {
      const uid = new URLSearchParams(location.search).get("uid");
      return uid !== null && uid !== before;
    }, before);
    before = new URL(page.url()).searchParams.get("uid");
  };
  await go(PAGES.guards);
  await search();
  await mock("anew=reborn", false);
  await search();
  await page.click("[aria-label=View] >> text=Tree");
  await page.waitForSelector("[role=treegrid] [aria-level='1'] >> text=reborn");
  await mock("anew=reborn", false);
  await search();
});
await check("an arrow key that is held changes the address once, and asks about the last object", async () => {
  await go(`?page=object&${BULK}&view=table`);
  await page.waitForSelector("[role=grid] [role=row] >> nth=20");
  let asked = 0;
  const count = () => (asked += 1);
  await page.route("**/console/events", (route) => (count(), route.continue()));
  const written = await page.evaluate(async () => {
    const grid = document.querySelector("[role=grid]");
    const replace = history.replaceState.bind(history);
    let written = 0;
    history.replaceState = (...place) => ((written += 1), replace(...place));
    // As fast as a keyboard repeats.
    for (let row = 0; row < 150; row += 1) {
      grid.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowDown", bubbles: true }));
      await new Promise((resolve) => requestAnimationFrame(resolve));
    }
    return written;
  });
  await page.locator("section[aria-label^='Object '] >> text=CollectionHeld").waitFor();
  await page.waitForFunction(() => location.search.includes("sel="));
  // A machine that is busy may stop for longer than the page waits.
  assert(written < 15 && asked < 15, `${written} addresses, ${asked} questions`);
  await page.unroute("**/console/events");
});
await check("an object that two references of one uid own has its page", async () => {
  await go("?page=object&kind=ConfigMap&ns=shop&name=owned-twice");
  await page.waitForSelector("dd >> text=Secret shop/keeper, Secret shop/keeper own it");
  assert((await page.locator("g.box:has-text('keeper')").count()) === 1, "the owner has not one box");
});
await check("a deletion with a grace period does not make the clock wrong", async () => {
  const isSaid = async () => (await page.innerText("main")).includes("The clock of this computer");
  await go("?page=object&kind=Pod&ns=shop&name=graceful");
  assert(!(await isSaid()), "on the page of the object");
  await go("?page=object&kind=Namespace&resource=namespaces&name=shop&view=table&q=graceful");
  await page.waitForSelector("[role=grid] >> text=graceful");
  assert(!(await isSaid()), "on the page of its namespace");
});
await check("an age that is none is said, and nothing is asked", async () => {
  for (const age of ["5x", "9".repeat(400) + "d"]) {
    await go(PAGES.stuck);
    await page.fill("main header input", age);
    let asked = 0;
    await page.route("**/FindStuckObjects", (route) => ((asked += 1), route.continue()));
    await page.keyboard.press("Enter");
    await page.waitForSelector("text=is not a time.");
    await page.click("text=Read again");
    await page.waitForFunction(() => location.search.includes("age="));
    assert(asked === 0 && (await page.isVisible("text=is not a time.")), `${asked} questions`);
    await page.unroute("**/FindStuckObjects");
  }
});
await check("the page asks about an object every few seconds, and not more often", async () => {
  await go(`?page=object&${WEB}&view=tree`);
  const asked = () => page.waitForRequest("**/ExplainObject");
  await asked();
  const before = performance.now();
  await asked();
  const ms = performance.now() - before;
  assert(ms > 3000, `it asks again after ${ms.toFixed(0)} ms`);
});
await check("the graph of a namespace has its objects", async () => {
  await go(`?page=object&${WEB}&view=tree`);
  await page.click("main header >> text=Namespace");
  await page.waitForSelector("text=Namespace shop");
  await page.keyboard.press("2");
  const row = (name) => page.locator("[role=treegrid] [role=row]", { hasText: name });
  await row("Deployment/web").first().waitFor();
  assert((await row("Deployment/web").first().getAttribute("aria-level")) === "2", "an object without an owner");
  await page.click("text=Open all");
  assert((await row("ReplicaSet/web-7f9c").first().getAttribute("aria-level")) === "3", "a dependent");
  assert((await row("ConfigMap/a").count()) === 0, "an object of another namespace");
  await page.click("text=Copy kubectl command");
  const command = await page.evaluate(() => navigator.clipboard.readText());
  assert(command === "kubectl ownergraph --context mock export -o mermaid -n shop", command);
  await page.keyboard.press("1");
  await page.locator("g.box").first().waitFor();
  const found = await violations(page);
  assert(found.length === 0, `axe-core: ${found.join("; ")}`);
});
await check("a box of several objects says what it stands for, and which one it selects", async () => {
  await go(`?page=object&${WEB}&by=namespace`);
  const box = page.locator("g.box", { hasText: "12 objects in shop" });
  const text = await box.textContent();
  assert(text.includes("■ 1 of 15 held"), text);
  await box.click();
  await page.waitForSelector("text=The card shows Secret shop/api-key, one of 12 in its box.");
  assert((await box.getAttribute("aria-pressed")) === "true", "the box is not selected");
  const found = await violations(page);
  assert(found.length === 0, `axe-core: ${found.join("; ")}`);
  await page.click("text=fold siblings");
  await page.waitForSelector("main select:disabled");
});
await check("a tree with a filter can be closed", async () => {
  await go(`?page=object&${WEB}&view=tree&kinds=Pod`);
  const pods = page.locator("[role=treegrid] [role=row]", { hasText: "Pod/" });
  await pods.first().waitFor();
  await page.click("text=Close all");
  await page.waitForFunction(() => !document.querySelector("[role=treegrid]").innerText.includes("Pod/"));
});
await check("filters are chips, and one says how much they hide", async () => {
  await go(`?page=object&${WEB}&view=table`);
  await page.click('[aria-label="kinds"] button:text-is("Pod")');
  await page.click("text=/^\\d+ filtered/");
  await page.waitForFunction(() => !location.search.includes("kinds="));
});
await check("paused updates stop the page, and go on", async () => {
  await go(PAGES.decisions);
  const status = page.locator("main p[role=status]");
  await page.keyboard.press("p");
  const paused = (age) =>
    page.waitForFunction((age) => new RegExp(`paused, ${age}\\.\\d s old`).test(document.body.innerText), age);
  // What had arrived is shown within the first second; then the age grows, and the log stands still.
  await paused("[1-3]");
  const before = await status.innerText();
  await paused("[4-9]");
  assert((await status.innerText()) === before, "the log goes on");
  await page.keyboard.press("p");
  await page.waitForFunction((before) => document.querySelector("main p[role=status]").innerText !== before, before);
});
await check("a filter that is chosen while updates are paused applies when they go on", async () => {
  await go(PAGES.decisions);
  const rows = () => page.locator("[role=grid] [role=row]").count();
  await page.waitForFunction(() => document.querySelectorAll("[role=grid] [role=row]").length > 10);
  await page.keyboard.press("p");
  await page.click('[aria-label="phases"] button:text-is("held")');
  await page.waitForSelector("text=the new filter applies when you resume them");
  assert((await rows()) > 10, "the table is empty");
  await page.keyboard.press("p");
  await page.waitForFunction(() => !document.body.innerText.includes("the new filter applies"));
  await page.waitForFunction(() => {
    const rows = [...document.querySelectorAll("[role=grid] [role=row]")].slice(1);
    return rows.length > 0 && rows.every((row) => row.innerText.includes("held"));
  });
});
await check("the row of the keyboard stays with its decision", async () => {
  await go(PAGES.decisions);
  await page.waitForFunction(() => document.querySelectorAll("[role=grid] [role=row]").length > 10);
  await page.locator("[role=grid]").focus();
  await page.keyboard.press("ArrowDown");
  const marked = () =>
    page.evaluate(
      () => document.querySelector("[role=grid] [aria-selected=true]")?.querySelectorAll("a")[0]?.innerText,
    );
  const before = await marked();
  const count = await page.locator("main p[role=status]").innerText();
  await page.waitForFunction((count) => document.querySelector("main p[role=status]").innerText !== count, count);
  assert((await marked()) === before, `the row was ${before} and is ${await marked()}`);
});
await check("a deletion needs the name, also from an address by uid", async () => {
  await go("?page=object&kind=ReplicaSet&ns=shop&name=web-7f9c");
  await page.waitForFunction(() => location.search.includes("uid="));
  await page.click("main header >> text=Plan a deletion");
  await page.click("text=Delete…");
  const button = page.locator("dialog button.danger");
  assert(await button.isDisabled(), "the button is enabled at once");
  await page.screenshot({ path: `${shots}delete.png` });
  const found = await violations(page);
  assert(found.length === 0, `axe-core: ${found.join("; ")}`);
  const name = page.locator("dialog input[size='30']");
  for (const leave of [() => page.click("dialog >> text=Cancel"), () => page.keyboard.press("Escape")]) {
    await name.fill("web-7f9c");
    await page.waitForSelector("dialog button.danger:enabled");
    await leave();
    await page.waitForFunction(() => document.querySelector("dialog[open]") === null);
    await page.click("text=Delete…");
    assert((await name.inputValue()) === "" && (await button.isDisabled()), "the name of an earlier dialog is there");
  }
  await name.fill("web-7f9c");
  const [request] = await Promise.all([page.waitForRequest("**/console/delete"), button.click()]);
  const { version, resource, uid } = request.postDataJSON();
  assert(version === "v1" && resource === "replicasets" && uid !== "", `${version} ${resource} ${uid}`);
  await page.waitForFunction(() => location.search.includes("page=cascade"));
});
const status = (words) => page.locator("main p", { hasText: `status ${words}` });
await check("a status has its sign and its word, on the page of the object and on its card", async () => {
  for (const [query, words] of [
    [WEB, "◐ InProgress Deployment does not have minimum availability."],
    [BULK, "● Current"],
    ["kind=ConfigMap&ns=ring&name=a", "▲ Terminating"],
    ["kind=ConfigMap&ns=shop&name=lost-owner", "○ Unknown"],
    ["kind=ConfigMap&ns=billing&name=misplaced", "○ Unknown you lack the right to get configmaps in namespace billing"],
  ]) {
    await go(`?page=object&${query}&view=tree`);
    await status(words).waitFor();
  }
  const found = await violations(page);
  assert(found.length === 0, `axe-core: ${found.join("; ")}`);
  await go(`?page=object&${WEB}&view=tree`);
  await page.locator("[role=treegrid] [role=row]", { hasText: "api-key" }).click();
  await page.locator("section[aria-label^='Object '] p", { hasText: "status ● Current" }).waitFor();
});
await check("the answer about a status moves nothing", async () => {
  let answer;
  const held = new Promise((resolve) => (answer = resolve));
  await page.route("**/console/status", async (route) => (await held, route.continue()));
  await go(`?page=object&${WEB}&view=tree`);
  await status("…").waitFor();
  const top = async () => (await page.locator("[aria-label=View]").boundingBox()).y;
  const before = await top();
  answer();
  await status("◐ InProgress").waitFor();
  assert((await top()) === before, `the page moves from ${before} to ${await top()}`);
  await page.unroute("**/console/status");
});
await check("the status of the shown object alone is asked, and asked again when the object changes", async () => {
  const name = "web-7f9c-zz7wl";
  const asked = [];
  await page.route("**/console/status", (route) => (asked.push(route.request().postDataJSON().name), route.continue()));
  await go(`?page=object&kind=Pod&ns=shop&name=${name}&view=tree`);
  await page.waitForFunction(() => location.search.includes("uid="));
  await status("● Current").waitFor();
  const before = asked.length;
  for (let time = 0; time < 2; time += 1) await page.waitForRequest("**/ExplainObject");
  assert(asked.length === before, `${asked.length - before} questions without a change`);
  await mock(`spoil=${name}`, false);
  await status("▲ Failed back-off 5m0s restarting failed container").waitFor();
  assert(asked.length === before + 1 && asked.every((one) => one === name), asked.join());
  await page.unroute("**/console/status");
});
await check("the card of an object has its Events", async () => {
  await go(PAGES["object-graph"]);
  await page.locator("g.box").first().click();
  const card = page.locator("section[aria-label^='Object ']");
  await card.locator("text=CollectionHeld").waitFor();
  const text = await card.innerText();
  const sign = await card.locator("svg[aria-hidden=true] text").textContent();
  assert(/^[A-Z][A-Za-z]{1,2}$/.test(sign), `the sign of the kind is “${sign}”`);
  assert(/held by protections\/keys by ownergraph, 1 m \d+ s ago, 3 times/.test(text.replace(/\s+/g, " ")), text);
  const found = await violations(page);
  assert(found.length === 0, `axe-core: ${found.join("; ")}`);
});
await check("lists say what they do not cover", async () => {
  for (const name of ["stuck", "orphans", "cycles"]) {
    await go(PAGES[name]);
    await page.waitForSelector("main >> text=1 kind is not synced: leases.coordination.k8s.io");
    await page.waitForSelector("main >> text=/\\d s old/");
  }
  await go("?page=cycles&in=shop");
  await page.waitForSelector("text=Among the kinds that are synced, no objects own each other in shop.");
  await go("?page=stuck&in=shop");
  await page.waitForSelector("[role=grid] >> text=1 object that you may not see");
});
await check("a list that has a part only says how many others there are", async () => {
  for (const [query, ...words] of [
    ["?page=object&kind=ConfigMap&ns=billing&name=owned-by-many", "and 5 more", "5 more owners without a box."],
    [`?page=plan&${BULK}`, "and 3 more guards"],
    [PAGES.cycles, "and 5 more references", "and 3 more objects"],
  ]) {
    await go(query);
    for (const text of words) await page.waitForSelector(`main >> text=${text}`);
  }
});
await check("an answer to an earlier choice is not shown under the new one", async () => {
  const enter = () => page.keyboard.press("Enter");
  for (const [query, call, answer, choose] of [
    [PAGES.stuck, "FindStuckObjects", "[role=grid]", () => page.fill("main header input", "90d").then(enter)],
    [PAGES.cycles, "FindCycles", "main section", () => page.click("main header >> text=only blocking")],
    [PAGES.parity, "ListDisagreements", "main figure", () => page.click("main header >> text=24h")],
    [PAGES.parity, "ListDisagreements", "[role=grid]", () => page.click('[aria-label="Classes"] >> text=timing')],
  ]) {
    await go(query);
    await page.waitForSelector(answer);
    let release;
    const waits = new Promise((resolve) => (release = resolve));
    await page.route(`**/${call}`, (route) => waits.then(() => route.continue()));
    await choose();
    await page.waitForSelector("main p[role=status] >> text=/^Reading .*…/");
    assert((await page.locator(answer).count()) === 0, `${query}: the earlier answer is there`);
    release();
    await settled(page);
    await page.unroute(`**/${call}`);
  }
});
await check("orphans are what the command counts and finds", async () => {
  await go("?page=orphans&in=ring,shop");
  const copied = async () => {
    await page.click("text=Copy kubectl command");
    return page.evaluate(() => navigator.clipboard.readText());
  };
  const first = "kubectl ownergraph --context mock orphans";
  assert((await copied()) === `${first} -n ring; ${first} -n shop`, await copied());
  const kind = page.locator("[aria-label='Objects by kind'] [role=row]", { hasText: /^Deployment\.apps/ });
  assert((await kind.innerText()).split(/\s+/).join(" ") === "Deployment.apps 1 1", await kind.innerText());
  const found = page.locator("[aria-label^='References'] [role=row]:not(.head)");
  for (const [choice, flag, names] of [
    ["lost owner", "--lost-owner", ["of-renewed"]],
    ["dangling", "--dangling", ["leftover", "odd-owner", "of-renewed"]],
  ]) {
    await page.click(`[aria-label='Standing of the owner'] button:has-text('${choice}')`);
    await page.waitForFunction((choice) => new URLSearchParams(location.search).get("is") === choice, choice);
    const texts = await found.allInnerTexts();
    const missing = names.filter((name) => !texts.some((text) => text.includes(name)));
    assert(texts.length === names.length && missing.length === 0, `${choice}: ${texts.join("; ")}`);
    assert((await copied()).startsWith(`${first} ${flag} -n ring; `), await copied());
  }
  await found.locator("text=dangling, created again").waitFor();
});
await check("all rows of a table are copied, and not only those in sight", async () => {
  for (const query of [PAGES.stuck, PAGES.plan, PAGES.decisions, `?page=object&${BULK}&view=table`]) {
    await go(query);
    await page.locator("[role=grid] [role=row] >> nth=1").waitFor();
    if (query === PAGES.decisions) {
      await page.keyboard.press("p");
      // What had arrived is shown within the first second.
      await page.waitForTimeout(1000);
    }
    await page.click("text=Copy rows");
    await page.locator(".notice", { hasText: /[\d,]+ rows copied\./ }).waitFor();
    const rows = (await page.evaluate(() => navigator.clipboard.readText())).trimEnd().split(/\r?\n/);
    const grid = page.locator("[role=grid]");
    assert(rows.length === Number(await grid.getAttribute("aria-rowcount")), `${query}: ${rows.length} rows`);
    const titles = await grid.locator("[role=columnheader]").allInnerTexts();
    assert(rows[0] === titles.join("\t"), `${query}: ${rows[0]}`);
    const at = titles.findIndex((title) => ["Object", "Name"].includes(title));
    const cell = await grid.locator("[role=row] >> nth=1").locator("[role=gridcell]").nth(at).innerText();
    assert(rows[1].split("\t")[at] === cell, `${query}: “${cell}” is copied as “${rows[1]}”`);
  }
});
await check("a plot is exported", async () => {
  await go(PAGES.overview);
  const figure = page.locator("figure", { hasText: /Deletions\s+per second/ });
  await figure.locator("svg").waitFor({ state: "visible" });
  const exported = async (kind) => {
    const [download] = await Promise.all([
      page.waitForEvent("download"),
      figure.locator(`button:text-is("${kind}")`).click(),
    ]);
    const name = `deletions.${kind.toLowerCase()}`;
    assert(download.suggestedFilename() === name, download.suggestedFilename());
    await download.saveAs(`${shots}${name}`);
    return readFile(`${shots}${name}`);
  };
  const text = (await exported("SVG")).toString();
  const { root, curve, labels } = await page.evaluate((text) => {
    const { documentElement: root } = new DOMParser().parseFromString(text, "image/svg+xml");
    const curve = [...root.querySelectorAll(":scope > path")].find(
      (path) => path.getAttribute("stroke-width") === "2px",
    );
    return {
      root: root.nodeName,
      curve: curve && [curve.getAttribute("d"), curve.getAttribute("stroke")],
      labels: [...root.querySelectorAll("text")].map((label) => label.textContent),
    };
  }, text);
  assert(root === "svg" && !/class=|var\(/.test(text), `the picture needs a style sheet: ${text.slice(0, 500)}`);
  assert(/^M[\d.]+ [\d.]+L/.test(curve?.[0]) && /^rgb/.test(curve[1]), `no curve: ${curve}`);
  assert(labels.filter((label) => /^\d\d:\d\d:\d\d$/.test(label)).length === 3, `no times: ${labels}`);
  const bytes = await exported("PNG");
  const { width, height, colours } = await page.evaluate(async (base64) => {
    const bytes = Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
    const bitmap = await createImageBitmap(new Blob([bytes], { type: "image/png" }));
    const { width, height } = bitmap;
    const pen = Object.assign(document.createElement("canvas"), { width, height }).getContext("2d");
    pen.drawImage(bitmap, 0, 0);
    const { data } = pen.getImageData(0, 0, width, height);
    return { width, height, colours: new Set(new Uint32Array(data.buffer)).size };
  }, bytes.toString("base64"));
  assert(width === 1040 && height === 440 && colours > 2, `${width} x ${height} pixels of ${colours} colours`);
  // The curve begins with the page, and the mock deletes something every few seconds.
  for (let attempt = 1; ; attempt += 1) {
    const [head, ...rows] = (await exported("CSV")).toString().trimEnd().split("\r\n");
    assert(head === "series,time,per second", head);
    const values = rows.map((row) => row.split(","));
    const wrong = values.filter(
      ([name, at, value]) => name === "" || Number.isNaN(Date.parse(at)) || !(Number(value) >= 0),
    );
    assert(wrong.length === 0, `no series, time and value: ${wrong[0]}`);
    if (values.length > 1 && values.some(([, , value]) => Number(value) > 0)) break;
    assert(attempt < 30, `${values.length} rows of nothing`);
    await page.waitForTimeout(1000);
  }
  await figure.locator('button:text-is("PromQL")').click();
  assert((await figure.locator("pre").innerText()).includes("ownergraph_objects_removed_total"), "no PromQL");
});
await check("for a reader who wants less motion nothing moves, and no change flashes", async () => {
  for (const [reducedMotion, flashes] of [
    ["no-preference", true],
    ["reduce", false],
  ]) {
    const { context, page } = await open({ reducedMotion });
    await show(page, PAGES["object-tree"]);
    const seen = await page.waitForFunction(() => {
      const row = document.querySelector("[role=treegrid] .flash:not(.active)");
      return row && [getComputedStyle(row).backgroundColor, document.getAnimations().length];
    });
    const [back, animations] = await seen.jsonValue();
    assert((back !== "rgba(0, 0, 0, 0)") === flashes && animations === 0, `${reducedMotion}: ${back}, ${animations}`);
    await context.close();
  }
});
await check("the plot of lags says which kinds are not synced, the worst first", async () => {
  await go(PAGES.overview);
  const figure = page.locator("figure", { hasText: "Watch lag by kind" });
  await figure.locator("text=▲ failed, never listed").waitFor();
  await figure.locator('button:text-is("Table")').click();
  const rows = await figure.locator("tbody tr").evaluateAll((rows) => rows.map((row) => row.innerText.split(/\s+/)));
  assert(
    rows
      .slice(0, 3)
      .map(([name]) => name)
      .join() === "backups.example.com,leases.coordination.k8s.io,archives.example.com",
    rows.join("; "),
  );
  assert(!rows.some(([name]) => name === "events"), "a kind that the collector ignores");
});
await check("answers 429 of the API server are plotted", async () => {
  await go(PAGES.overview);
  const figure = page.locator("figure", { hasText: "API server answers 429" });
  await figure.locator('button:text-is("Table")').click();
  // The kept events come after the stream.
  await figure
    .locator("td:nth-child(3)", { hasText: /^0\.[1-9]|^[1-9]/ })
    .first()
    .waitFor();
});
await check("each page has its command and its link", async () => {
  for (const [name, query] of Object.entries(PAGES)) {
    await go(query);
    await page.click("text=Copy kubectl command");
    const command = await page.evaluate(() => navigator.clipboard.readText());
    assert(command.startsWith("kubectl ownergraph --context mock "), `${name}: ${command}`);
    await page.click("text=Copy link");
    const link = await page.evaluate(() => navigator.clipboard.readText());
    assert(link.includes("cluster=mock") && !link.includes("token"), `${name}: ${link}`);
  }
  await go(`?page=object&${WEB}`);
  await page.click("text=Copy kubectl command");
  const command = await page.evaluate(() => navigator.clipboard.readText());
  assert(command === "kubectl ownergraph --context mock tree deployments.apps/web -n shop", command);
});
await check("a guard is approved", async () => {
  await go(PAGES.guards);
  await page.click("text=Approve…");
  await page.waitForSelector("dialog[open]");
  await page.click("dialog button.danger");
  await page.waitForSelector("text=is approved");
});
await check("decisions are shown as they are made", async () => {
  await go(PAGES.decisions);
  await page.waitForFunction(() => document.querySelectorAll("[role=grid] [role=row]").length > 10);
  const first = await page.locator("main p[role=status]").innerText();
  await page.waitForFunction((first) => document.querySelector("main p[role=status]")?.innerText !== first, first);
});
await check("the filters of decisions reach the service, and its error is shown", async () => {
  await go(PAGES.decisions);
  await page.fill("#cel", "nonsense == 1");
  await page.click("text=Apply");
  await page.waitForSelector("text=unknown variable nonsense");
});
await check("an address with words that no service knows is no error", async () => {
  await go("?page=decisions&phases=NONSENSE&since=soon");
  await page.waitForSelector("text=not a time");
  await page.waitForFunction(() => document.querySelectorAll("[role=grid] [role=row]").length > 10);
});
await check("none of these is an error for the browser", () => assert(errors.length === 0, errors.join("; ")));
await context.close();
