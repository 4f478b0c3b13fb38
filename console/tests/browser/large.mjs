// What the page shows of large graphs. Nothing here has a limit of time.

import { assert, BULK, check, drew, go, measured, open, PAGES, traced } from "./harness.mjs";

const { context, page } = await open();

await check("a large graph says what it shows", async () => {
  await go(page, PAGES["object-large"]);
  await page.waitForSelector("text=Showing 300 of 12,431", { timeout: 60_000 });
  measured(await page.locator("text=/in .* boxes, laid out in/").innerText());
});
await check("of 1,000 to 10,000 boxes the graph shows 500, and says so", async () => {
  await go(page, `?page=object&${BULK}&fold=no&q=entry-00`);
  await page.waitForSelector("text=11,400 filtered", { timeout: 60_000 });
  await page.waitForSelector("text=Showing 500 of 12,431", { timeout: 60_000 });
  const boxes = await page.locator("g.box").count();
  assert(boxes >= 500 && boxes < 600, `${boxes} boxes`);
});
await check("the tree table of 12,431 rows scrolls without a gap", async () => {
  await go(page, `?page=object&${BULK}&view=tree&fold=no&open=all`);
  await page.waitForFunction(
    () => document.querySelector("[role=treegrid]")?.getAttribute("aria-rowcount") === "12432",
    undefined,
    { timeout: 60_000 },
  );
  const { frames, gaps, late, first, wanted } = await page.evaluate(async () => {
    const grid = document.querySelector("[role=treegrid]");
    const frame = () => new Promise((resolve) => requestAnimationFrame(resolve));
    const rows = () => [...grid.querySelectorAll("[role=row]")];
    let gaps = 0;
    let late = 0;
    const FRAMES = 120;
    for (let at = 1; at <= FRAMES; at += 1) {
      // Slow and fast by turns, to the end: up to 2,800 rows in one frame.
      grid.scrollTop = (grid.scrollHeight * (at % 9 === 0 ? (at * 37) % FRAMES : at)) / FRAMES;
      const box = grid.getBoundingClientRect();
      const [head, ...body] = rows().map((row) => row.getBoundingClientRect());
      // What this frame paints, before the page has handled the scroll.
      if (head.top > box.top + 2 || body[0].top > head.bottom + 1 || body.at(-1).bottom < box.bottom - 20) gaps += 1;
      await frame();
      await frame();
      const row = Number(rows()[1].getAttribute("aria-rowindex"));
      if (Math.abs(row - 2 - Math.floor(grid.scrollTop / 28)) > 1) late += 1;
    }
    const first = rows().at(-1).querySelector("strong")?.innerText;
    return { frames: FRAMES, gaps, late, first, wanted: grid.getAttribute("aria-rowcount") };
  });
  measured(`${frames} jumps: ${gaps} frames with a gap, ${late} with rows of another place after two frames`);
  assert(gaps === 0 && late === 0, `${gaps} gaps, ${late} late`);
  assert(wanted === "12432" && first?.startsWith("entry-"), `the last row is ${first}`);
});
await check("a page that stands still for a second is noticed", async () => {
  const still = () =>
    page.evaluate(() => {
      const end = performance.now() + 1500;
      while (performance.now() < end);
    });
  const figures = await traced(page, still);
  let said = "nothing";
  try {
    drew(figures);
  } catch (error) {
    said = error.message;
  }
  assert(/^only \d+ frames in \d+\.\d s$/.test(said), `${said} is said of ${figures.frames} frames`);
});
await context.close();
