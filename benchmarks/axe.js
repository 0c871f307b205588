// What axe-core finds in pages: in light and dark mode, on a wide screen and on a phone.
//   npm install --prefix /tmp/axe axe-core playwright-core
//   NODE_PATH=/tmp/axe/node_modules node benchmarks/axe.js PAGE.html ...
// CHROMIUM names the browser (default: /usr/bin/chromium). Exits with 1 where there is a violation,
// or where a page is wider than its screen.
const fs = require("fs");
const path = require("path");
const { chromium } = require("playwright-core");
const axe = fs.readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");
const SCREENS = { wide: [1280, 900], phone: [390, 844] };

async function main(pages) {
  const browser = await chromium.launch({
    executablePath: process.env.CHROMIUM || "/usr/bin/chromium",
    args: ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"],
  });
  let bad = false;
  for (const page of pages) {
    for (const colorScheme of ["light", "dark"]) {
      for (const [screen, [width, height]] of Object.entries(SCREENS)) {
        const context = await browser.newContext({ colorScheme, viewport: { width, height } });
        const tab = await context.newPage();
        await tab.goto("file://" + path.resolve(page));
        await tab.evaluate(axe);
        const { violations } = await tab.evaluate(() => axe.run(document));
        const over = await tab.evaluate(() => document.documentElement.scrollWidth) - width;
        const found = violations.map((each) => `${each.id} (${each.nodes.length})`);
        if (over > 0) found.push(`${over} pixels too wide`);
        bad = bad || found.length > 0;
        console.log(`${page}, ${colorScheme}, ${screen}: ${found.join(", ") || "nothing"}`);
        await context.close();
      }
    }
  }
  await browser.close();
  process.exitCode = bad ? 1 : 0;
}

main(process.argv.slice(2));
