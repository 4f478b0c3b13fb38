// The page of guards: what a caller may do there, and new guards.

import { assert, check, go as show, mock, open, PAGES, shots, violations } from "./harness.mjs";

const { context, page, errors } = await open();
const go = (query) => show(page, query);

/** Shows the page of guards to a caller who has these rights only. */
async function guardsWith(rights, show) {
  await mock(`rights=${encodeURIComponent(rights)}`, false);
  try {
    await go(PAGES.guards);
    await page.waitForSelector("section[aria-label='budgets/calm']");
    const buttons = async () => (await page.locator("main button:text-matches('…$')").allInnerTexts()).join(" ");
    await show(buttons);
  } finally {
    await mock("rights=", false);
  }
}
await check("a caller with the role ownergraph-operate has every button of the guards", () =>
  guardsWith("operate", async (buttons) => {
    await page.waitForSelector("text=Release…");
    const shown = await buttons();
    assert(shown === "New guard… Pause deletions… Release… Release… Approve… Release… Release…", shown);
    assert(!(await page.locator("main").innerText()).includes("You may not"), "something is refused");
  }),
);
await check("a caller without a right about guards reads which one is missing", async () => {
  await guardsWith("view", async (buttons) => {
    await page.waitForSelector("text=You may not pause deletions (update pauses.ownergraph.dev).");
    for (const words of [
      "create guards (create protections.ownergraph.dev)",
      "release pauses (update pauses.ownergraph.dev)",
      "release protections (get protections.ownergraph.dev)",
      "approve cascades (get approvals.ownergraph.dev)",
      "release gates (update gates.ownergraph.dev)",
      "release budgets (get budgets.ownergraph.dev)",
    ])
      await page.waitForSelector(`text=You may not ${words}.`);
    assert((await buttons()) === "", await buttons());
    const found = await violations(page);
    assert(found.length === 0, `axe-core: ${found.join("; ")}`);
  });
  // The graph service asks for the right to update pauses. The one to create them is another one.
  await guardsWith("create pauses,get budgets,patch budgets/calm,create gates", async (buttons) => {
    await page.waitForSelector("text=You may not pause deletions (update pauses.ownergraph.dev).");
    const own = page.locator("section[aria-label='budgets/calm'] button:text-is('Release…')");
    await own.waitFor();
    assert((await buttons()) === "New guard… Release…", await buttons());
    await page.click("text=New guard…");
    await page.waitForSelector("dialog >> text=You may not create protections (create protections.ownergraph.dev).");
    assert(await page.isDisabled("dialog button:text-is('Check')"), "a check without the right");
    await page.selectOption("dialog select", "Gate");
    assert(await page.isEnabled("dialog button:text-is('Check')"), "no check with the right");
  });
});
await check("rights about guards that cannot be checked are said, and checked again", async () => {
  const says = "Your rights could not be checked. The API server does not answer.";
  await mock("review=on", false);
  try {
    await go(PAGES.guards);
    await page.waitForSelector(`text=${says}`);
    assert((await page.locator("text=Release…").count()) === 0, "a button without a right");
  } finally {
    await mock("review=off", false);
  }
  await page.waitForSelector("text=Release…");
  await page.waitForSelector(`text=${says}`, { state: "detached" });
  await mock("review=on", false);
  try {
    await page.keyboard.press("r");
    await page.waitForSelector(`text=${says}`);
    assert((await page.locator("text=Release…").count()) > 0, "the buttons go with one failure");
  } finally {
    await mock("review=off", false);
  }
});
await check("a guard is written, checked by the API server, and created by keys alone", async () => {
  await go(PAGES.guards);
  await page.waitForSelector("text=New guard…");
  await page.focus("text=New guard…");
  await page.keyboard.press("Enter");
  const [area, create] = [page.locator("dialog textarea"), page.locator("dialog button:text-is('Create')")];
  await page.focus("dialog select");
  for (const kind of ["Protection", "Budget", "Approval", "Gate"]) {
    assert((await area.inputValue()).includes(`\nkind: ${kind}\n`), await area.inputValue());
    await page.keyboard.press("ArrowDown");
  }
  await page.selectOption("dialog select", "Budget");
  assert(await create.isDisabled(), "it can be created unchecked");
  const found = await violations(page);
  assert(found.length === 0, `axe-core: ${found.join("; ")}`);
  const manifest = await area.inputValue();
  await area.fill(manifest.replace("no surprises", ""));
  await page.keyboard.press("Tab");
  await page.keyboard.press("Enter");
  await page.waitForSelector('dialog >> text=Budget.ownergraph.dev "calm" is invalid: spec.reason: Required value');
  assert(await create.isDisabled(), "what is refused can be created");
  await page.screenshot({ path: `${shots}guard-refused.png` });
  await area.fill(manifest);
  await page.keyboard.press("Tab");
  const [dry] = await Promise.all([page.waitForRequest("**/guards/create"), page.keyboard.press("Enter")]);
  assert(dry.postDataJSON().dryRun === true, dry.postData());
  await page.waitForSelector("dialog >> text=The API server accepts budgets/calm. It is not created yet.");
  await area.press("End");
  await page.keyboard.type(" ");
  assert(await create.isDisabled(), "a change needs no new check");
  await page.keyboard.press("Backspace");
  await page.keyboard.press("Tab");
  await page.keyboard.press("Tab");
  const [made] = await Promise.all([page.waitForRequest("**/guards/create"), page.keyboard.press("Enter")]);
  const { dryRun, manifest: sent } = made.postDataJSON();
  assert(dryRun === false && sent === manifest, made.postData());
  await page.waitForSelector("text=budgets/calm is created.");
  await page.waitForFunction(() => location.search.includes("guard=budgets%2Fcalm"));
});
await check("the consent to pause everything ends with the dialog, and a double click makes one pause", async () => {
  await go(PAGES.guards);
  const box = page.locator("dialog input[type=checkbox]");
  await page.click("text=Pause deletions…");
  await box.check();
  await page.click("dialog >> text=Cancel");
  await page.click("text=Pause deletions…");
  assert(!(await box.isChecked()), "the consent stays");
  await box.check();
  await page.fill("dialog input[required]", "look first");
  const sent = [];
  page.on("request", (request) => request.method() === "POST" && sent.push(new URL(request.url()).pathname));
  await page.locator("dialog form").evaluate((form) => (form.requestSubmit(), form.requestSubmit()));
  await page.waitForSelector("text=pauses/console-1 holds deletions for 1h.");
  await page.locator("section[aria-label='budgets/calm'] button:text-is('Release…')").click();
  await page.locator("dialog button.danger").evaluate((button) => (button.click(), button.click()));
  await page.waitForSelector("text=budgets/calm is released.");
  for (const path of ["/console/guards/pause", "/console/guards/release"]) {
    const times = sent.filter((one) => one === path).length;
    assert(times === 1, `${path}: ${times} times`);
  }
});
await check("none of these is an error for the browser, except refusals", () => {
  const others = errors.filter((error) => !error.includes("status of 502"));
  assert(others.length === 0, others.join("; "));
});
await context.close();
