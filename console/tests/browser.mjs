// Checks of the built console in a browser, over the mock. `npm run build` comes first. Arguments name parts. Those that
// measure, speed and lighthouse, need a machine without other work: `npm run measure`.

import { finish } from "./browser/harness.mjs";

const PARTS = ["pages", "use", "large", "cascade", "guards", "faults"];
const wanted = process.argv.slice(2);
for (const part of wanted.length > 0 ? wanted : PARTS) await import(`./browser/${part}.mjs`);
await finish();
