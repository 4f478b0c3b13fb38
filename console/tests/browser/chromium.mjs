// A page in Chromium, and what all checks share.

import { existsSync, mkdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { availableParallelism, loadavg } from "node:os";
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

/** How many programs share a core: others make everything slower, so limits of times grow with them. */
export const busy = () => Math.max(1, loadavg()[0] / availableParallelism());
/** The least of some runs: other programs only add to a time. */
export async function least(rounds, run) {
  const times = [];
  for (let round = 0; round < rounds; round += 1) times.push(await run());
  return Math.min(...times);
}

/** The milliseconds from the address of the overview to its numbers. */
export async function usable(page) {
  const shown = await page.waitForFunction(
    () => document.querySelector("main .figure") && document.querySelector("[role=search] button") && performance.now(),
    undefined,
    { polling: "raf" },
  );
  return shown.jsonValue();
}

/** Reads the size of the heap of a page, in MB. */
export async function heapOf(page) {
  const session = await page.context().newCDPSession(page);
  await session.send("Performance.enable");
  return async () => {
    const { metrics } = await session.send("Performance.getMetrics");
    return metrics.find(({ name }) => name === "JSHeapUsedSize").value / 1e6;
  };
}

/** Frames of the page until `done`, and tasks of its main thread from the trace of the browser. */
export async function traced(page, done) {
  const heap = await heapOf(page);
  await (await browser()).startTracing(page, { categories: ["toplevel", "devtools.timeline", "__metadata"] });
  await page.evaluate(() => {
    const state = (globalThis.frames_ = { times: [], long: [], stop: false });
    new PerformanceObserver((list) => {
      for (const entry of list.getEntries()) state.long.push(entry.duration);
    }).observe({ type: "long-animation-frame" });
    const tick = (at) => {
      state.times.push(at);
      if (!state.stop) requestAnimationFrame(tick);
    };
    requestAnimationFrame(tick);
  });
  let most = 0;
  const sampler = setInterval(
    () =>
      heap().then(
        (mb) => (most = Math.max(most, mb)),
        () => {},
      ),
    250,
  );
  const began = performance.now();
  await done();
  const lasted = (performance.now() - began) / 1000;
  clearInterval(sampler);
  const { times, long } = await page.evaluate(() => ((globalThis.frames_.stop = true), globalThis.frames_));
  const trace = JSON.parse((await (await browser()).stopTracing()).toString());
  const main = new Set(
    trace.traceEvents
      .filter(({ name, args }) => name === "thread_name" && args?.name === "CrRendererMain")
      .map(({ pid, tid }) => `${pid} ${tid}`),
  );
  const tasks = trace.traceEvents
    .filter(({ name, pid, tid }) => name === "ThreadControllerImpl::RunTask" && main.has(`${pid} ${tid}`))
    .map(({ dur = 0, tdur = 0 }) => ({ wall: dur / 1000, cpu: tdur / 1000 }));
  const gaps = times.slice(1).map((at, index) => at - times[index]);
  const seconds = (times.at(-1) - times[0]) / 1000;
  return {
    fps: gaps.length / seconds,
    longest: Math.max(...gaps),
    slow: gaps.filter((gap) => gap > 50).length,
    long,
    wall: Math.max(0, ...tasks.map(({ wall }) => wall)),
    cpu: Math.max(0, ...tasks.map(({ cpu }) => cpu)),
    frames: gaps.length,
    lasted,
    most,
  };
}

/** Whether a trace has frames enough for figures. A page that draws fewer in a second or more stands still. */
export function drew({ frames, lasted }) {
  const enough = frames >= 30;
  assert(enough || lasted < 1, `only ${frames} frames in ${lasted.toFixed(1)} s`);
  return enough;
}

/**
 * Prints the figures of a trace. Limits are generous: the machine may have two cores, and other programs. `share` is how
 * many programs share a core.
 */
export function assertSmooth({ fps, longest, slow, long, wall, cpu, frames, most }, share = busy()) {
  measured(
    `${fps.toFixed(0)} frames/s of ${frames} frames, aim 60; longest frame ${longest.toFixed(0)} ms, ${slow} over 50 ms, aim 0`,
  );
  measured(
    `longest task ${wall.toFixed(0)} ms, of which ${cpu.toFixed(0)} ms on the processor; ${long.length} long frames of the browser; heap at most ${most.toFixed(0)} MB, aim 200`,
  );
  assert(fps > 30 / share, `${fps} frames/s`);
  assert(cpu < 100, `a task of ${cpu} ms`);
  assert(longest < 250 * share, `a frame of ${longest} ms`);
  assert(most < 200, `${most} MB`);
}

/** Ends the run. Its exit code says whether all checks have passed. */
export async function finish() {
  await closeBrowser();
  console.log(`${passed} passed, ${failures.length} failed${failures.map((name) => `\n        ${name}`).join("")}`);
  process.exit(failures.length > 0 ? 1 : 0);
}
