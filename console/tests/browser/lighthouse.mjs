// Lighthouse, without a network: performance, accessibility and best practices of the built page on loopback.

import { launch } from "chrome-launcher";
import lighthouse from "lighthouse";
import { assert, BROWSER, busy, check, closeBrowser, measured, origin, PAGES } from "./harness.mjs";

// One browser at a time.
await closeBrowser();
const SETTINGS = {
  output: "json",
  logLevel: "error",
  onlyCategories: ["performance", "accessibility", "best-practices"],
  // The back end is on the reader's machine: there is no network to slow down, and the processor is this one.
  formFactor: "desktop",
  screenEmulation: { mobile: false, width: 1360, height: 900, deviceScaleFactor: 1, disabled: false },
  throttlingMethod: "provided",
  // Streams stay open, so the network never falls silent.
  maxWaitForLoad: 15_000,
};
const LEAST = 95;
/** Other programs only take from the score of performance: the best of some rounds counts. */
const ROUNDS = 3;
/** With more programs for each core the score of performance says nothing about the page. */
const BUSY_MOST = 1.5;

const chrome = await launch({
  chromePath: BROWSER,
  chromeFlags: ["--headless=new", "--no-sandbox"],
  logLevel: "error",
});
try {
  for (const name of ["overview", "object-web", "decisions"]) {
    await check(`Lighthouse of ${name}`, async () => {
      let low = [];
      for (let round = 0; round < ROUNDS; round += 1) {
        const { lhr } = await lighthouse(`${origin}/${PAGES[name]}#token=mock`, { ...SETTINGS, port: chrome.port });
        const scores = Object.values(lhr.categories).map(({ title, score }) => [title, Math.round((score ?? 0) * 100)]);
        const times = [
          "first-contentful-paint",
          "largest-contentful-paint",
          "total-blocking-time",
          "cumulative-layout-shift",
        ].map((id) => `${lhr.audits[id].title} ${lhr.audits[id].displayValue ?? lhr.audits[id].errorMessage}`);
        measured(`${scores.map(([title, score]) => `${title} ${score}`).join(", ")}; ${times.join(", ")}`);
        const judged = Object.values(lhr.categories).filter(({ id }) => id !== "performance" || busy() < BUSY_MOST);
        low = judged.flatMap(({ score, auditRefs }) =>
          (score ?? 0) * 100 >= LEAST
            ? []
            : auditRefs
                .filter(({ id, weight }) => weight > 0 && (lhr.audits[id].score ?? 0) < 0.9)
                .map(({ id }) => `${id} ${lhr.audits[id].displayValue ?? lhr.audits[id].errorMessage ?? ""}`),
        );
        if (judged.length < Object.keys(lhr.categories).length)
          measured(`performance is not judged: ${busy().toFixed(1)} programs share a core`);
        // Other programs make a page slow, and move nothing in it.
        const shift = lhr.audits["cumulative-layout-shift"];
        if ((shift.score ?? 0) < 0.9) low.push(`${shift.id} ${shift.displayValue}`);
        if (low.length === 0) return;
      }
      assert(false, low.join("; "));
    });
  }
} finally {
  chrome.kill();
}
