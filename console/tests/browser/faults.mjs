// Bad input and bad days: the page says what is wrong, keeps what it showed with its age, and recovers by itself.

import { assert, check, go, mock, open, origin, PAGES, settled, shots, violations, WEB } from "./harness.mjs";

const { context, page } = await open();
const says = (words, timeout = 30_000) =>
  page.waitForFunction((words) => document.body.innerText.includes(words), words, { timeout });
const unsays = (words) =>
  page.waitForFunction((words) => !document.body.innerText.includes(words), words, { timeout: 30_000 });

for (const [name, fault, words] of [
  ["the service is away", "away", "The service does not answer"],
  ["the leader changes", "election", "No replica leads at the moment"],
]) {
  await check(`${name}: the page keeps what it shows, and comes back`, async () => {
    await go(page, `?page=object&${WEB}&view=tree`);
    await page.waitForSelector("text=web-settings");
    await mock(`${fault}=on`);
    try {
      await page.waitForSelector("text=/not live, .* old; next try/", { timeout: 30_000 });
      await says(words);
      await page.screenshot({ path: `${shots}${fault}.png` });
      assert(await page.isVisible("text=web-settings"), "the rows are gone");
    } finally {
      await mock(`${fault}=off`);
    }
    await unsays("not live");
    await unsays(words);
  });
}
await check("pages without a stream come back too", async () => {
  await go(page, PAGES.stuck);
  await page.waitForSelector("[role=grid] [role=row]");
  await mock("away=on");
  try {
    await page.keyboard.press("r");
    await says("The service does not answer");
    assert((await page.locator("[role=grid] [role=row]").count()) > 1, "the rows are gone");
    assert(await page.isVisible("text=/\\d s old/"), "no age");
  } finally {
    await mock("away=off");
  }
  await unsays("The service does not answer");
});
await check("a stream that stops without an end is noticed", async () => {
  await page.clock.install();
  await go(page, `?page=object&${WEB}&view=tree`);
  await page.waitForSelector("text=web-settings");
  await mock("mute=on", false);
  try {
    await page.clock.fastForward(20_000);
    await page.waitForSelector("text=/no message for \\d+ s/");
    await page.clock.fastForward(20_000);
    await says("no message for 35 s");
    assert(await page.isVisible("text=web-settings"), "the rows are gone");
  } finally {
    await mock("mute=off", false);
  }
  await page.clock.fastForward(20_000);
  await unsays("no message for");
});
await check("an export that stalls is noticed, and read again", async () => {
  const { context, page } = await open();
  await page.clock.install();
  const says = (words) => page.waitForFunction((words) => document.body.innerText.includes(words), words);
  await mock("mute=on&narrow=on", false);
  try {
    await page.goto(`${origin}/?page=orphans&in=shop#token=mock`);
    await says("0 references so far; 0 objects read");
    assert(!(await page.innerText("main")).includes("the graph has"), "an estimate that the caller does not get");
    // One search that stalls says so as well.
    await page.fill("#search", "web");
    await page.keyboard.press("Enter");
    await says("Searching for “web”…");
    await page.clock.fastForward(36_000);
    await says("no message for 35 s");
    await says("the list is incomplete");
    assert(!(await page.isVisible("text=Searching for")), "the search goes on");
  } finally {
    await mock("mute=off&narrow=off", false);
  }
  await page.clock.fastForward(6000);
  await page.waitForSelector("[role=grid] >> text=leftover");
  await page.waitForSelector("main header >> text=/\\d s old/");
  await context.close();
});
await check("an expired token is said once, and the page goes on with that of another tab", async () => {
  const { context, page } = await open();
  await go(page, PAGES.overview);
  await mock("expired=on");
  try {
    await page.keyboard.press("r");
    await page.waitForSelector("text=The token of this page is not valid any more.", { timeout: 30_000 });
    await page.screenshot({ path: `${shots}expired.png` });
    assert(await page.isVisible("text=Backlog"), "what was shown is gone");
    await page.waitForFunction(() => localStorage.getItem("ownergraph-token") === null);
  } finally {
    await mock("expired=off");
  }
  const other = await context.newPage();
  await go(other, PAGES.stuck);
  await page.waitForFunction(() => !document.body.innerText.includes("The token of this page is not valid any more."));
  await page.waitForSelector(".state .tone-ok");
  assert(!(await page.isVisible("text=ended,")), "a stream has ended");
  await context.close();
});
await check("a new tab has the token of the first one, until the back end refuses it", async () => {
  const { context, page } = await open();
  await go(page, PAGES.overview);
  const other = await context.newPage();
  for (const address of [PAGES.stuck, `${PAGES.guards}#token=used`]) {
    await other.goto("about:blank");
    await other.goto(`${origin}/${address}`);
    await settled(other);
    await other.waitForSelector("text=alice@example.com");
    assert(!(await other.isVisible("text=is not valid any more")), address);
  }
  const refused = "text=The token of this page is not valid any more.";
  await mock("expired=on", false);
  try {
    await other.reload();
    await other.waitForSelector(refused);
  } finally {
    await mock("expired=off", false);
  }
  await other.reload();
  await other.waitForSelector(refused);
  assert((await other.evaluate(() => localStorage.getItem("ownergraph-token"))) === null, "the token stays");
  await context.close();
});
await check("an address that is pasted into a tab of the console is opened", async () => {
  const { context, page } = await open();
  await page.goto(`${origin}/#token=other`);
  await page.waitForSelector("text=The token of this page is not valid any more.");
  await page.goto(`${origin}/#token=mock`);
  await page.waitForSelector("text=alice@example.com");
  assert(!page.url().includes("token"), "the token is in the address");
  await context.close();
});
await check("in a cluster, a user signs in with a token", async () => {
  await mock("login=on");
  const { context, page } = await open();
  try {
    await page.goto(`${origin}/${PAGES.overview}#token=mock`);
    await page.waitForSelector("text=The API server does not know you.");
    const found = await violations(page);
    assert(found.length === 0, `axe-core: ${found.join("; ")}`);
    await page.screenshot({ path: `${shots}login.png` });
    await page.fill("input[type=password]", "of\u2011alice");
    await page.waitForSelector("text=This is no token");
    assert(await page.isDisabled("button:text-is('Sign in')"), "a token that no header can carry");
    for (const [token, known] of [
      ["of-bob", false],
      ["of-alice", true],
    ]) {
      await page.fill("input[type=password]", token);
      await page.keyboard.press("Enter");
      await page.waitForSelector(known ? "text=alice@example.com" : "text=The API server does not know you.");
    }
    await page.waitForSelector("text=Backlog");
    assert((await page.locator("input[type=password]").count()) === 0, "the form stays");
  } finally {
    await mock("login=off", false);
  }
  await context.close();
});
await check("a page without a valid token says so", async () => {
  const { context, page } = await open();
  await page.goto(`${origin}/#token=other`);
  await page.waitForSelector("text=The token of this page is not valid any more.");
  await page.screenshot({ path: `${shots}token.png` });
  await context.close();
});
await check("rights for one namespace: the page says what to choose, and works then", async () => {
  const { context, page } = await open();
  await mock("narrow=on");
  try {
    await go(page, PAGES.stuck);
    await page.waitForSelector("text=Choose a namespace at the top of the page");
    await page.screenshot({ path: `${shots}narrow.png` });
    await page.fill("#scope", "shop");
    await page.keyboard.press("Enter");
    await page.waitForSelector("[role=grid] >> text=orders-nightly");
    await go(page, "?page=decisions&in=shop");
    await page.waitForFunction(() => document.querySelectorAll("[role=grid] [role=row]").length > 10);
  } finally {
    await mock("narrow=off");
  }
  await context.close();
});
await check("rights for one namespace: a search by type and name finds the objects there", async () => {
  const { context, page } = await open();
  const search = async (typed) => {
    await page.fill("#search", typed);
    await page.keyboard.press("Enter");
  };
  await mock("narrow=on");
  try {
    for (const [typed, kind] of [
      ["deploy/web", "Deployment"],
      ["Database orders", "Database"],
    ]) {
      await go(page, "?page=stuck&in=shop");
      await search(typed);
      await page.waitForSelector(`main h1 >> text=${kind} shop/`);
      await page.waitForSelector("main [aria-label=View]");
    }
    await search("deploy/absent");
    await page.waitForSelector("text=There is no such object in shop.");
    await page.fill("#scope", "");
    await search("deploy/web");
    await page.waitForSelector("[role=search] >> text=Choose a namespace at the top of the page");
  } finally {
    await mock("narrow=off");
  }
  await context.close();
});
await check("without a right for the state of the collector, the overview says which role has it", async () => {
  const { context, page } = await open();
  await mock("narrow=on");
  try {
    await go(page, `${PAGES.overview}&in=shop`);
    const role = "in all namespaces. Ask for the role ownergraph-operate, by a ClusterRoleBinding.";
    await page.waitForSelector("text=You may not watch status in all namespaces.");
    await page.waitForSelector(`main >> text=You may not list executors ${role}`);
    await page.waitForSelector("main >> text=Stuck for the longest time");
    assert(!(await page.innerText("body")).includes("Choose a namespace"), "it advises what does not help");
    await page.screenshot({ path: `${shots}overview-narrow.png` });
  } finally {
    await mock("narrow=off");
  }
  await page.click("text=Try again");
  await page.waitForSelector("text=Backlog");
  await context.close();
});
await check("each fault of the collector is on the overview", async () => {
  await mock("broken=on", false);
  try {
    await go(page, PAGES.overview);
    for (const words of [
      "STOPPED: the collector's loop has made no progress for 42 s",
      "INCONSISTENT reads of pods: version 7 has web-1, and version 9 has not",
      "UNTRUE: 10 reports of executor executor-1 (process 1f), refused for another 9 m",
      "Decisions are on JetStream, which is unreachable; grants continue (connection refused), 4 wait, 2 lost",
      "The resourceVersions of events do not match those of other collections",
      "And 1 more of the collections with other resourceVersions",
      "and 3 more",
    ])
      await says(words);
    const found = await violations(page);
    assert(found.length === 0, `axe-core: ${found.join("; ")}`);
    await page.screenshot({ path: `${shots}overview-broken.png` });
  } finally {
    await mock("broken=off", false);
  }
  await unsays("STOPPED");
});
await check("plots of a list that is too long say how much of it they have", async () => {
  await mock("crowded=on", false);
  try {
    await go(page, PAGES.overview);
    await says("of the first 15 executors");
    await says("of the first 85 kinds");
  } finally {
    await mock("crowded=off", false);
  }
});
await check("a graph that is behind is not green", async () => {
  await go(page, PAGES.overview);
  const stamp = page.locator(".state .tone-ok", { hasText: "0.4 s behind" });
  await stamp.waitFor();
  await mock("late=on", false);
  try {
    await page.locator(".state .tone-wait", { hasText: "2 m behind" }).waitFor();
    assert((await stamp.count()) === 0, "it is green");
  } finally {
    await mock("late=off", false);
  }
});
await check("a right that cannot be checked is said, and checked again", async () => {
  await mock("review=on", false);
  try {
    await go(page, PAGES.plan);
    await says("Your right to delete this object could not be checked. The API server does not answer.");
    assert(!(await page.isVisible("text=Delete…")), "a button without a right");
  } finally {
    await mock("review=off", false);
  }
  await page.waitForSelector("text=Delete…");
  await unsays("could not be checked");
  await mock("review=on", false);
  try {
    await page.click("text=Plan again");
    await says("could not be checked");
    assert(await page.isVisible("text=Delete…"), "the button goes with one failure");
  } finally {
    await mock("review=off", false);
  }
});
await check("a wrong clock is said, and corrected", async () => {
  const { context, page } = await open();
  await mock("skew=on", false);
  try {
    await go(page, PAGES.overview);
    const said = () => document.body.innerText.includes("The clock of this computer is behind the cluster's by 1 h");
    await page.waitForFunction(said);
  } finally {
    await mock("skew=off", false);
  }
  await go(page, PAGES.overview);
  await page.waitForFunction(() => !document.body.innerText.includes("The clock of this computer"));
  await context.close();
});
await check("a clock that is ahead does not hide decisions", async () => {
  const { context, page } = await open();
  await page.clock.install({ time: Date.now() + 3_600_000 });
  // The stream begins before the page knows the time of the cluster.
  await page.route("**/console/session", (route) => setTimeout(() => route.continue(), 2000));
  await page.goto(`${origin}/${PAGES.decisions}#token=mock`);
  await page.waitForSelector("text=The clock of this computer is ahead of the cluster's by 1 h");
  const many = () => /^(\d{3}|\d,\d{3}) events/.test(document.querySelector("main p[role=status]").innerText);
  await page.waitForFunction(many, undefined, { timeout: 3000 });
  await context.close();
});
await check("names with markup and controls are text", async () => {
  const { context, page, errors } = await open();
  await go(page, PAGES.orphans);
  await page.waitForSelector("[role=grid] >> text=<img src=x onerror=alert(1)>\\u{202e}");
  assert((await page.locator("main img").count()) === 0, "a name became an element");
  assert(errors.length === 0, errors.join("; "));
  await context.close();
});
await context.close();
