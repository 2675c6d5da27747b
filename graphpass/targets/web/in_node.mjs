// Runs a task in Node: node in_node.mjs TASK.json ANSWER.json
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

import { generate } from './generate.mjs';

const [task, answer] = process.argv.slice(2);
const given = JSON.parse(await readFile(task, 'utf8'));
const file = join(given.modules, '@huggingface/transformers/dist/transformers.node.mjs');
const library = await import(pathToFileURL(file));
library.env.allowRemoteModels = false;
library.env.localModelPath = '/';
await writeFile(answer, JSON.stringify({ version: library.env.version, ...(await generate(library, given)) }));
// Threads of the library may keep the process alive.
process.exit(0);
