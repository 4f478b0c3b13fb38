// The tour of a newcomer: `ownergraph demo --console` with a cascade of 10,000 objects, and its console in a browser. The
// argument is the program. `npm run tour -- ../target/release/ownergraph` needs a machine without other work.

import { spawn } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { availableParallelism } from "node:os";
import {
  assert,
  assertSmooth,
  busy,
  check,
  drew,
  finish,
  least,
  measured,
  open,
  traced,
  usable,
} from "./browser/chromium.mjs";

const OBJECTS = 10_000;
const WITHIN_MS = 300_000;
const program = process.argv[2];
if (!program) throw new Error("usage: tour.mjs PROGRAM");

/** A running demo. `says` waits for a line of its story. */
function demo() {
  const running = spawn(program, ["demo", "--console", "--no-browser", "--objects", String(OBJECTS)], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  let told = "";
  let heard = () => {};
  running.stdout.on("data", (part) => ((told += part), heard()));
  running.on("exit", () => heard());
  const says = (words) =>
    new Promise((resolve, reject) => {
      const late = setTimeout(() => reject(new Error(`the demo does not say ${words}: ${told}`)), WITHIN_MS);
      heard = () => {
        const found = told.match(words)?.[0];
        if (found === undefined && running.exitCode === null) return;
        clearTimeout(late);
        if (found === undefined) reject(new Error(`the demo ended: ${told}`));
        else resolve(found);
      };
      heard();
    });
  const end = async () => {
    const ended = new Promise((resolve) => running.on("exit", resolve));
    running.kill("SIGINT");
    assert((await ended) === 0 && told.includes("Checked at the API server"), `the demo failed: ${told}`);
  };
  return { says, end, pid: running.pid };
}

/** How many threads of a program may run on all processors. */
const everywhere = (pid) =>
  readdirSync(`/proc/${pid}/task`).filter((thread) => {
    const status = readFileSync(`/proc/${pid}/task/${thread}/status`, "utf8");
    const [, mask] = status.match(/Cpus_allowed:\s+([\da-f,]+)/);
    const bits = BigInt(`0x${mask.replaceAll(",", "")}`)
      .toString(2)
      .replaceAll("0", "");
    return bits.length === availableParallelism();
  }).length;

await check("the overview during the cascade of the demo", async () => {
  const { says, end, pid } = demo();
  const address = await says(/http\S+#token=\w+/);
  const { origin, hash } = new URL(address);
  const { context, page, errors } = await open(origin);
  await page.goto(`${origin}/?page=overview${hash}`);
  await page.waitForSelector("main h1");
  await says(/5\. Cascade/);
  if (process.platform === "linux" && availableParallelism() > 1)
    assert(everywhere(pid) === 1, "not only the first thread runs on all processors");
  const figures = await traced(page, () => says(/10,000 of 10,000 gone/));
  // A short cascade gives no figures.
  if (drew(figures)) assertSmooth(figures, 4 * busy());
  else measured(`only ${figures.frames} frames: the cascade was too short`);
  await says(/The console goes on/);
  const ms = await least(3, async () => {
    await page.goto("about:blank");
    await page.goto(`${origin}/?page=overview`, { waitUntil: "commit" });
    return usable(page);
  });
  measured(`${ms.toFixed(0)} ms from the address to the numbers; aim 1000`);
  assert(ms < 1000 * busy(), `${ms} ms`);
  await page.waitForFunction(() => /Backlog\s+0\s/.test(document.querySelector("main").innerText));
  assert(errors.length === 0, errors.join("; "));
  await context.close();
  await end();
});
await finish();
