// The page of a cascade: what blocks it, how it ends, and its pause. And deletions, which begin one.

import {
  assert,
  check,
  go as show,
  mock,
  open,
  origin,
  PAGES,
  shots,
  violations,
  watchTotals,
  WEB,
} from "./harness.mjs";

const { context, page, errors } = await open();
const go = (query) => show(page, query);
const says = (words) =>
  page.waitForFunction((words) => document.querySelector("main").innerText.includes(words), words);
const text = () => page.innerText("main");
const STORM = "?page=cascade&kind=Database&group=example.com&ns=bulk&name=storm";
const PAUSE = "main button:text-is('Pause this cascade…')";

// The storms below push older events out of the log of the mock.
await check("the cascade of a namespace has the decisions about the objects in it, and so has its pause", async () => {
  await go("?page=cascade&kind=Namespace&resource=namespaces&name=shop");
  await page.waitForFunction(() => /\nHeld\n[1-9]/.test(document.querySelector("main").innerText));
  await page.waitForFunction(() => /\nDeleted\n[1-9][\d,]{2}/.test(document.querySelector("main").innerText));
  await page.click(PAUSE);
  await page.waitForSelector("dialog >> text=Scope: all objects in Namespace shop");
  await page.waitForSelector("dialog >> text=no pause holds that");
  await page.fill("dialog[open] input[required]", "look first");
  const [request] = await Promise.all([
    page.waitForRequest("**/console/guards/pause"),
    page.click("dialog[open] button[type=submit]"),
  ]);
  const { namespaces, kinds, owner } = request.postDataJSON();
  assert(namespaces.join() === "shop" && kinds.length === 0 && !owner, request.postData());
  await says("pauses/console-1 holds this cascade");
  await page.click("main button:text-is('Resume…')");
  await page.click("dialog[open] button.danger");
  await page.waitForFunction(() => !document.querySelector("main").innerText.includes("holds this cascade"));
});
await check("a root that is blocked blocks its cascade", async () => {
  await mock("storm=40", false);
  await go(STORM);
  await says("waits until its dependents are deleted");
  assert(!(await text()).includes("Nothing blocks the cascade"), await text());
});
await check("a decision that fails is a blocker, also for a page that opens later", async () => {
  await mock("fail=1", false);
  for (const words of ["while the page is open", "from the beginning"]) {
    await says("webhook policy.example.com: connection refused");
    assert((await text()).includes("ConfigMap bulk/storm-0-0"), `${words}: ${await text()}`);
    await go(STORM);
  }
});
await check("an object whose decision fails is an error of its owner's page", async () => {
  await go(`${STORM.replace("cascade", "object")}&errors=only&view=table`);
  await says("storm-0-0");
  assert(!(await text()).includes("storm-0-1"), await text());
});
await check("a tree that is too large to walk says what to do, and is not done", async () => {
  await mock("limit=on", false);
  try {
    await go(STORM);
    await says("There are more than 200000 objects below this one.");
    await says("Begin at an object further down.");
    await says("It is not known what blocks the cascade");
    assert(!/\bdone\b/.test(await text()), await text());
  } finally {
    await mock("limit=off", false);
  }
});
await check("a cascade that has ended says so, also for a page that opens later", async () => {
  await go(STORM);
  await page.waitForFunction(() => location.search.includes("uid="));
  const uid = new URL(page.url()).searchParams.get("uid");
  await mock("calm=on", false);
  const ended = async () => {
    await says("Database bulk/storm was deleted");
    await page.waitForFunction(() => /Time left\s+none\s+done/.test(document.querySelector("main").innerText));
    await says("Nothing blocks the cascade.");
  };
  await ended();
  await go(`${STORM}&uid=${uid}`);
  await ended();
  assert(!(await text()).includes("knows no such object"), await text());
  assert((await page.locator(`.bad-panel, ${PAUSE}`).count()) === 0, "there is an error, or a button to pause");
  await page.screenshot({ path: `${shots}cascade-ended.png` });
});
await check("the numbers of a cascade never fall", async () => {
  await mock("storm=3000", false);
  await go(STORM);
  await says("of 3,000 objects");
  const falls = await watchTotals(page);
  await mock("blow=100", false);
  await page.waitForFunction(() => /Left\s+20\s+of 3,000 objects/.test(document.querySelector("main").innerText));
  assert((await falls()).length === 0, (await falls()).join("; "));
  await mock("storm=20", false);
});
await check("the table of a plot has the newest numbers, and says that it has a part", async () => {
  await mock("storm=1000", false);
  await go(STORM);
  await says("of 1,000 objects");
  await mock("blow=100", false);
  await page.waitForFunction(() => /Left\s+20\s+of 1,000 objects/.test(document.querySelector("main").innerText));
  const figure = page.locator("figure", { hasText: "Burn-down" });
  await figure.locator('button:text-is("Table")').click();
  await figure.locator("p", { hasText: "The newest 200 of" }).waitFor();
  const rows = figure.locator("tbody tr");
  assert((await rows.count()) === 200, `${await rows.count()} rows`);
  assert((await rows.last().locator("td").last().innerText()) === "20", await rows.last().innerText());
  await mock("storm=20", false);
});
await check("without the decision log, what blocks is known as far as the graph shows", async () => {
  const quiet = "?page=cascade&kind=ReplicaSet&ns=shop&name=web-7f9c";
  await mock("leaderless=on", false);
  try {
    // The page never settles.
    await page.goto("about:blank");
    await page.goto(`${origin}/${quiet}#token=mock`);
    await says("No replica leads at the moment");
    await says("Reading…");
    assert(!(await text()).includes("Nothing blocks"), await text());
  } finally {
    await mock("leaderless=off", false);
  }
  await says("Nothing blocks the cascade.");
  await mock("sealed=on", false);
  try {
    await go(quiet);
    await says("Nothing blocks the cascade, as far as the graph shows.");
  } finally {
    await mock("sealed=off", false);
  }
});
await check("an object that the graph does not know is said once", async () => {
  await go("?page=cascade&kind=Pod&ns=shop&name=none&uid=00000000-0000-4000-8000-ffffffffffff");
  await says("It is not known what blocks the cascade");
  assert((await text()).split("The graph knows no such object.").length === 2, await text());
});
await check("a cascade is paused with all that is below its root, and resumed", async () => {
  await go(PAGES.cascade);
  await page.click(PAUSE);
  const found = await violations(page);
  assert(found.length === 0, `axe-core: ${found.join("; ")}`);
  await page.fill("dialog[open] input[required]", "look first");
  const [request] = await Promise.all([
    page.waitForRequest("**/console/guards/pause"),
    page.click("dialog[open] button[type=submit]"),
  ]);
  const { namespaces, kinds, owner } = request.postDataJSON();
  assert(namespaces.length === 0 && kinds.length === 0, `${namespaces} ${kinds}`);
  const { uid, ...address } = owner;
  const wanted = '{"group":"example.com","resource":"databases","namespace":"shop","name":"orders"}';
  assert(uid !== "" && JSON.stringify(address) === wanted, JSON.stringify(owner));
  await says("pauses/console-1 holds this cascade");
  await page.click("main button:text-is('Resume…')");
  await page.screenshot({ path: `${shots}resume.png` });
  await page.click("dialog[open] button.danger");
  await page.waitForFunction(() => !document.querySelector("main").innerText.includes("holds this cascade"));
});
await check("only a caller who may update pauses has the button to pause, and others read why", async () => {
  const noUpdate = "You may not pause deletions (update pauses.ownergraph.dev).";
  for (const [rights, buttons, words] of [
    ["view", 0, noUpdate],
    ["create pauses,list pauses", 0, noUpdate],
    ["update pauses", 1, "You may not list pauses (list pauses.ownergraph.dev)."],
  ]) {
    await mock(`rights=${encodeURIComponent(rights)}`, false);
    try {
      await go(PAGES.cascade);
      await says(words);
      assert((await page.locator(PAUSE).count()) === buttons, `${rights}: not ${buttons} buttons`);
    } finally {
      await mock("rights=", false);
    }
  }
});
await check("a right to pause that cannot be checked is said, and checked again", async () => {
  const words = "Your rights could not be checked. The API server does not answer.";
  await mock("review=on", false);
  try {
    await go(PAGES.cascade);
    await says(words);
    assert((await page.locator(PAUSE).count()) === 0, "a button without a right");
  } finally {
    await mock("review=off", false);
  }
  await page.waitForSelector(PAUSE);
  assert(!(await text()).includes(words), await text());
});
await check("pauses that cannot be read are said, and mode observe, which changes none", async () => {
  await go(PAGES.cascade);
  await page.waitForSelector(PAUSE);
  await says("In mode observe the service creates and ends no pauses.");
  const words = "Whether a pause holds this cascade could not be read. No replica leads at the moment";
  await mock("election=on", false);
  try {
    await says(words);
    assert((await page.locator(PAUSE).count()) === 1, "the button goes with one failure");
  } finally {
    await mock("election=off", false);
  }
  await page.waitForFunction((words) => !document.querySelector("main").innerText.includes(words), words);
});
await check("PromQL of a cascade says that it is of the whole cluster", async () => {
  await go(PAGES.cascade);
  for (const figure of await page.locator("figure").all()) {
    await figure.locator('button:text-is("PromQL")').click();
    const query = await figure.locator("pre").innerText();
    assert(query.includes("of the whole cluster"), query);
  }
});
await check("a plan with a held object is not carried out, and the dialog says why", async () => {
  await go(`?page=plan&${WEB}`);
  await page.click("text=Delete…");
  const dialog = page.locator("dialog[open]");
  await dialog.locator("text=1 object is held.").waitFor();
  await dialog.locator("text=the back end refuses this deletion").waitFor();
  assert(await dialog.locator("button.danger").isDisabled(), "the button is enabled");
  assert((await dialog.locator("input[size='30']").count()) === 0, "the dialog asks for the name");
  await page.screenshot({ path: `${shots}delete-refused.png` });
  const found = await violations(page);
  assert(found.length === 0, `axe-core: ${found.join("; ")}`);
  await dialog.locator("text=Orphan").first().click();
  await dialog.locator("input[size='30']").waitFor();
});
await check("none of these is an error for the browser, except refusals", () => {
  const others = errors.filter((error) => !error.includes("status of 502"));
  assert(others.length === 0, others.join("; "));
});
await context.close();
