// Fills the page of docs/example in headless Chromium: node fill_page.mjs TASK.json ANSWER.json
// Requests to jsdelivr.net are answered from node_modules.
import { readFile, writeFile } from 'node:fs/promises';
import { extname, join } from 'node:path';
import { pathToFileURL } from 'node:url';

const [task, answer] = process.argv.slice(2);
const given = JSON.parse(await readFile(task, 'utf8'));
const { default: puppeteer } = await import(
  pathToFileURL(join(given.modules, 'puppeteer-core/lib/esm/puppeteer/puppeteer-core.js'))
);
const TYPES = { '.js': 'text/javascript', '.mjs': 'text/javascript', '.wasm': 'application/wasm' };
const flags = ['--no-sandbox', '--enable-unsafe-webgpu', '--enable-features=Vulkan,WebGPU'];
const browser = await puppeteer.launch({
  executablePath: given.chromium,
  args: given.software ? [...flags, '--use-webgpu-adapter=swiftshader'] : flags,
  protocolTimeout: 0,
});
try {
  const page = await browser.newPage();
  page.on('console', (message) => console.error(message.text()));
  await page.setRequestInterception(true);
  page.on('request', async (request) => {
    const found = /^https:\/\/cdn\.jsdelivr\.net\/npm\/((?:@[^/]+\/)?[^@/]+)@([^/]+)(?:\/(.+))?$/.exec(request.url());
    if (!found) return request.continue();
    const [, name, version, path] = found;
    const folder = join(given.modules, name);
    const described = JSON.parse(await readFile(join(folder, 'package.json'), 'utf8'));
    if (described.version !== version) return request.respond({ status: 404, body: `${version} is not installed` });
    const file = join(folder, path ?? described.jsdelivr);
    const headers = { 'Access-Control-Allow-Origin': '*' };
    return request.respond({ body: await readFile(file), contentType: TYPES[extname(file)], headers });
  });
  await page.goto(given.url);
  await page.waitForSelector('body[data-state=ready]', { timeout: 0 });
  await page.click('button');
  await page.waitForSelector('body[data-state=done], body[data-state=failed]', { timeout: 0 });
  const text = (selector) => page.$eval(selector, (element) => element.textContent);
  await writeFile(answer, JSON.stringify({ output: await text('output'), facts: await text('#facts') }));
} finally {
  await browser.close();
}
