// Generates greedily with a folder, in Node or in a page.

/**
 * @param {object} library transformers.js.
 * @param {object} task `folder`; `device`; `batches` of rows of token ids; number of `steps`.
 * @returns {Promise<object>} For each batch the new `tokens` of its rows and the `logits` after its prompts; and times in ms.
 */
export async function generate(library, task) {
  const { AutoModelForCausalLM, Tensor } = library;
  let start = performance.now();
  const model = await AutoModelForCausalLM.from_pretrained(task.folder, { device: task.device });
  const opened = performance.now() - start;
  const tensor = (rows) => new Tensor('int64', BigInt64Array.from(rows.flat().map(BigInt)), [rows.length, rows[0].length]);
  const results = [];
  for (const rows of task.batches) {
    const length = Math.max(...rows.map((row) => row.length));
    const padded = (row, filler, ids) => [...Array(length - row.length).fill(filler), ...ids];
    const inputs = {
      input_ids: tensor(rows.map((row) => padded(row, 0, row))),
      attention_mask: tensor(rows.map((row) => padded(row, 0, row.map(() => 1)))),
    };
    const { logits } = await model(inputs);
    const last = await logits.slice(null, -1, null).to('float32');
    const values = Array.from(await last.ort_tensor.getData());
    const size = values.length / rows.length;
    start = performance.now();
    const times = [];
    const streamer = { put: () => times.push(performance.now()), end: () => {} };
    const sequences = await model.generate({
      ...inputs,
      max_new_tokens: task.steps,
      do_sample: false,
      eos_token_id: -1,
      streamer,
    });
    const width = sequences.dims[1];
    const flat = Array.from(await sequences.data, Number);
    results.push({
      tokens: rows.map((_, row) => flat.slice(row * width + length, (row + 1) * width)),
      logits: rows.map((_, row) => values.slice(row * size, (row + 1) * size)),
      times: times.map((time) => time - start),
    });
  }
  await model.dispose();
  return { opened, results };
}
