// Every page in light and dark: no error of the browser, no request to another origin, nothing that axe-core finds, and
// a picture in shots/.

import { assert, check, go, open, PAGES, shots, violations } from "./harness.mjs";

for (const scheme of ["light", "dark"]) {
  const { context, page, errors } = await open({ colorScheme: scheme });
  for (const [name, query] of Object.entries(PAGES)) {
    await check(`${name}, ${scheme}`, async () => {
      errors.length = 0;
      await go(page, query);
      if (name === "overview") await page.waitForFunction(() => !document.body.innerText.includes("No data yet"));
      await page.screenshot({ path: `${shots}${name}-${scheme}.png` });
      assert(!page.url().includes("token"), "the token is in the address");
      const found = await violations(page);
      assert(found.length === 0, `axe-core: ${found.join("; ")}`);
      assert(errors.length === 0, errors.join("; "));
    });
  }
  await context.close();
}
