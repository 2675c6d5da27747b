// Runs a task in headless Chromium: node in_browser.mjs TASK.json ANSWER.json
import { readFile, stat, writeFile } from 'node:fs/promises';
import { createReadStream } from 'node:fs';
import { createServer } from 'node:http';
import { extname, join, resolve, sep } from 'node:path';
import { pathToFileURL } from 'node:url';

const [task, answer] = process.argv.slice(2);
const given = JSON.parse(await readFile(task, 'utf8'));

const PAGE = `<!doctype html><meta charset="utf-8"><script type="importmap">${JSON.stringify({
  imports: {
    '@huggingface/transformers': '/modules/@huggingface/transformers/dist/transformers.web.js',
    'onnxruntime-web/webgpu': '/modules/onnxruntime-web/dist/ort.webgpu.bundle.min.mjs',
    'onnxruntime-common': '/modules/onnxruntime-common/dist/esm/index.js',
  },
})}</script>`;
const TYPES = { '.js': 'text/javascript', '.mjs': 'text/javascript', '.wasm': 'application/wasm', '.json': 'application/json' };
const PLACES = { modules: given.modules, model: given.folder, own: import.meta.dirname };

// WebAssembly threads require cross-origin isolation.
const server = createServer(async (request, response) => {
  response.setHeader('Cross-Origin-Opener-Policy', 'same-origin');
  response.setHeader('Cross-Origin-Embedder-Policy', 'require-corp');
  const [, place, ...rest] = decodeURIComponent(new URL(request.url, 'http://localhost').pathname).split('/');
  if (place === '') {
    response.setHeader('Content-Type', 'text/html').end(PAGE);
    return;
  }
  const root = PLACES[place] && resolve(PLACES[place]);
  const file = root && resolve(join(root, ...rest));
  const found = file?.startsWith(root + sep) && (await stat(file).catch(() => null));
  if (!found?.isFile()) {
    response.writeHead(404).end();
    return;
  }
  response.setHeader('Content-Type', TYPES[extname(file)] ?? 'application/octet-stream');
  response.setHeader('Content-Length', found.size);
  createReadStream(file).pipe(response);
});
await new Promise((done) => server.listen(0, '127.0.0.1', done));

const { default: puppeteer } = await import(
  pathToFileURL(join(given.modules, 'puppeteer-core/lib/esm/puppeteer/puppeteer-core.js'))
);
const flags = ['--no-sandbox', '--enable-unsafe-webgpu', '--enable-features=Vulkan,WebGPU'];
const browser = await puppeteer.launch({
  executablePath: given.chromium,
  args: given.software ? [...flags, '--use-webgpu-adapter=swiftshader'] : flags,
  protocolTimeout: 0,
});
try {
  const page = await browser.newPage();
  page.on('console', (message) => console.error(message.text()));
  await page.goto(`http://127.0.0.1:${server.address().port}/`);
  const found = await page.evaluate(async (work) => {
    const library = await import('@huggingface/transformers');
    const { generate } = await import('/own/generate.mjs');
    library.env.allowRemoteModels = false;
    library.env.allowLocalModels = true;
    library.env.localModelPath = '/';
    library.env.useBrowserCache = false;
    const wasm = library.env.backends.onnx.wasm;
    wasm.wasmPaths = '/modules/onnxruntime-web/dist/';
    return { version: library.env.version, ...(await generate(library, { ...work, folder: 'model' })) };
  }, given);
  await writeFile(answer, JSON.stringify(found));
} finally {
  await browser.close();
  server.close();
}
