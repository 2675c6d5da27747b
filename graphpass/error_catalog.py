"""Explain each error id; ``graphpass explain GP203`` prints the entry."""

from __future__ import annotations

import difflib
import re

from graphpass.errors import UsageError

_ENTRIES = """
GP101 MODEL does not exist, or you have no permission to read it. Check the spelling and the working directory. MODEL is
  an export on disk; export model ids of the Hugging Face hub first, for example by optimum-cli.
GP102 The file is neither an .onnx nor an .xml file. For an OpenVINO IR name the .xml file, for an ONNX model with
  external data the .onnx file; graphpass finds the weights beside it.
GP103 The folder has neither an .onnx nor an .xml file besides tokenizer models. Exporters often write into a subfolder
  (onnx/): name that one.
GP104 The file is not a complete ONNX model: for example an interrupted download, a Git LFS pointer, or a file of
  another kind. Export or copy it again.
GP105 The ONNX model stores weights in another file, which is missing, too short, outside the model's folder, or not
  readable by this user. Copy it beside the .onnx file, under the name in the message.
GP106 The .xml file is damaged, is not an OpenVINO IR, or has a version that this OpenVINO cannot read.
GP107 An OpenVINO IR stores its weights in a .bin file of the same name beside the .xml. It is missing, shorter than the
  .xml states, or not readable by this user.
GP108 The file with the pipeline, given as -p @FILE, does not exist or cannot be read as UTF-8 text.
GP109 Declarations of the model's caches are stored in its metadata, under graphpass.ir.cache (ONNX) or in the rt_info
  graphpass/caches (IR). These were not written by graphpass, or were changed since.
GP110 A file with the model's weights was replaced, edited or removed while graphpass worked on the model. Memory and
  disk may hold two different models, so nothing was written. Run it again.
GP111 A file that belongs to the model cannot be read; the message has the file system's error.
GP112 A tensor in the ONNX file has no type, or a shape that does not match its data. The file is damaged or forged.
GP113 A file that belongs to the model, such as a .bin file, a configuration or a tokenizer, is a link that leaves its
  folder. An untrusted model could copy any file of this machine into a result that way, so the link is not followed.
GP114 The configuration of a matrix, a report or the file of --baseline does not exist, or cannot be read.
GP115 A model or a result with an address (s3://, gs://) cannot be read; the message has the storage's error. Check the
  address, the credentials that its package reads, and the network.
GP116 A configuration beside the model is not a JSON object. Copy it again from the model's origin.
GP117 A session's state is read from a safetensors file that DecodeSession.save wrote. This file does not exist, is
  damaged, or is another file. Prefill again, and save again.
GP118 The certificate in the graphpass.json beside a result cannot be read: the file is damaged, or was written by
  another program or another version of graphpass. graphpass/reports/schemas/manifest.json describes it.
GP119 The ONNX model imports an opset that does not exist, has a function that calls itself, functions that expand to
  over a million nodes, or bodies nested over 16 deep. No exporter writes this: the file is damaged or hostile.
GP120 The file is neither a bundle nor a case of `graphpass reduce`, or it is damaged.
GP201 The folder has several models and none was chosen. Name the file. On a terminal graphpass asks.
GP202 A file name does not fit the format: results in ONNX end in .onnx, in OpenVINO IR in .xml. A pipeline with
  to-openvino writes an IR.
GP203 The result would overwrite its input. graphpass never edits a model in place: write to another folder or file.
GP204 The folder of --dump is inside the output folder, which does not exist before all of its files are complete.
  Create the output folder first, or dump into another one.
GP210 The text of the pipeline does not follow the grammar: names separated by commas, options in braces, for example
  to-openvino,make-stateful{beam-index=true}. The caret shows where. In a shell, put quotes around it.
GP211 No pass of that name is installed. `graphpass passes` lists those that are; plug-ins add theirs through the
  entry point group graphpass.passes.
GP212 The pass has no option of that name. Options are written in kebab-case; `graphpass explain PASS` lists them.
GP213 The option does not accept this value; the message has the type. Strings may be quoted, lists are in brackets, and
  the absence of a value is written none.
GP214 The file is not TOML, or has other entries than [[pass]] tables, each with a name and the options of that pass as
  keys.
GP215 No target of that name is installed. `graphpass targets` lists those that are; plug-ins add theirs through the
  entry point group graphpass.targets.
GP216 There is no error with this id. Ids are printed after the word error, as in: error: GP203: ...
GP217 The model has no cache of this name, or several whose names begin with it. `graphpass inspect --all` lists the
  caches; a cache is addressed by its own name, its past input or its present output.
GP218 The value of --cache is not a declaration: NAME=KIND, then known properties, separated by commas: batch, heads,
  sequence and head_dim with the index of an axis, and role. A kv cache needs its sequence axis: past_0=kv,sequence=2.
GP219 The declaration of a cache, by --cache or in the model, contradicts the graph; the message names the
  contradiction. Caches whose kind follows from the graph need no declaration.
GP220 Two installed distributions, or one and the running program, register a pass or target of the same name. Uninstall
  or rename one of the two that the message names.
GP221 The plug-in that registers this name cannot be imported; the message has the distribution and the reason. Other
  passes and targets are not affected.
GP222 A plug-in's registration is wrong: the class is not a Pass or Target, its name differs from the entry point's, or
  one of its fields cannot be an option because it has no default or a type that cannot be written in a pipeline.
GP223 The target of a plug-in implements no rules (`Target.predict`), so `graphpass check` cannot predict its runtime.
  `graphpass targets` marks the targets that have rules.
GP224 cache=reorder adds inputs that move slots of caches, and the target's runtime does not support them: it stores the
  caches outside of the model, or rewrites the model itself. Omit the option, or choose another target.
GP225 A folder with an encoder needs a decoder for the first step and one for all others (decoder_model and
  decoder_with_past_model), both in one file (decoder_model_merged), or a stateful one, and all of one format. Optimum
  writes them for tasks that end in -with-past.
GP226 The target does not convert models of an encoder and a decoder, or not with these options: NPUs and paged
  attention support decoders only, targets of ONNX Runtime do not store their caches as integers, and no target reorders
  their cache slots.
GP227 ONNX Runtime GenAI's builder writes an encoder that fills the caches of cross attention, as the target ort-genai
  requires. OpenVINO's runtimes require a decoder that fills them. Export the model with optimum.
GP228 GRAPHPASS_GPU_ENVIRONMENT names a folder in which the GPU plugin runs without a GPU: its Python is
  venv/bin/python, and env.sh sets the environment. Set it to such a folder, or unset it.
GP229 The folder has a language model and the models that compute its embeddings, in a format that the target does not
  support; only the language model is converted. Name its file to convert it alone.
GP230 --weights share makes the result's weights a hard link to the input's. This requires weights in one file, and a
  result on the same file system. Write with --weights copy.
GP231 The configuration of a matrix is invalid; the message has its file and line. The JSON Schema
  graphpass/reports/schemas/config.json lists the allowed keys; editors complete them from it.
GP232 There is no graphpass.toml, and no pyproject.toml with [tool.graphpass], in this folder or one above it. Write
  one, or name one.
GP233 Two cells of a matrix have the same name or output, so one would overwrite the other. Give the models names, and
  include {model} and {target} in output.
GP234 No cell of the matrix has a name that --select matches. Cells are called MODEL:TARGET; --dry-run lists
  them.
GP235 The file of --baseline is not a baseline that graphpass wrote, or a damaged one, which --update-baseline does not
  overwrite. Restore it from version control, or remove it.
GP236 An address names a protocol that fsspec does not know, or one that needs a package: pip install
  'graphpass[s3]', 'graphpass[gs]' or, for others, 'graphpass[remote]' and the package that fsspec lists.
GP237 Cells cannot be run on a Dask cluster: distributed is not installed, the scheduler does not answer, or its
  workers have other versions of graphpass and its libraries, whose results would differ.
GP240 The backend of this decode session cannot run this model or device: ONNX Runtime runs ONNX on CPU and WEBGPU, and
  pairs of static shapes on QNN; OpenVINO runs its own devices.
GP241 An array given to a decode session has the wrong shape: token ids are [batch, length], masks cover all positions
  so far.
GP242 A step has another batch size than the caches: reset the session first. Or the model has a fixed batch size, and
  the step has another.
GP243 Logits, hidden states, a snapshot or a saved state were requested before the first forward pass.
GP244 `reorder` was called with slots that the session does not have, with lists of different lengths, or with one
  destination twice. Slots count from 0 to the session's length less 1.
GP245 `trim` was called with more positions than the session has, or `rewind` with a length that it does not have.
GP246 `select` was called with rows that the session does not have, without rows, or with another number of rows than
  the model fixes. Rows count from 0.
GP247 The parents of a step do not form a tree: each new token needs one, the index of an earlier new token or -1 for
  the history.
GP248 A snapshot is valid only in the session that made it, until the session is reset or its adapter weights change:
  its caches no longer exist.
GP249 The text is not a reorder of ONNX Runtime's OpenVINO execution provider: sources, a semicolon and destinations,
  each separated by commas: 1,2,3;4,5,6.
GP238 The output folder has a result with other graphs, for example of another target. A runtime could not open a folder
  with both. Write into another folder, or remove the earlier result with --replace; files that graphpass did not write
  are kept.
GP239 The input of ci merge-reports is not a JSON report that --report-json of this version wrote.
GP250 The comparison is invalid: it has no prompt, a token id outside the vocabulary, a negative number of steps, a
  tolerance that is not 0 or more, a budget that is neither a time nor a size, or an option that models of an encoder
  and a decoder lack.
GP251 A session was given adapter weights (LoRA) for a variable that has none, or in another shape. The session lists
  the variables as adapters.
GP252 A saved state has the caches of one model, computed in one precision; a session of another model or with other
  settings cannot restore it. Open the model of the state, with the same settings.
GP253 The model does not have this layer. Layers are those with caches, counted from 0 in execution order; -1 is the
  last one.
GP261 Speculative decoding was requested for 0 tokens. Request at least one.
GP262 The draft model proposed a token id outside the target model's vocabulary. Both models need the same vocabulary.
GP263 A drafter's number of tokens, or length of context, is 0 or negative. Both must be at least 1.
GP265 A cache cannot be transferred: the transferred positions must fit into both layouts, both layouts into the buffer,
  and the buffer must be contiguous and writable.
GP266 A capacity, prompt or chunk is a number of positions: at least 1, and at most what contains it, the rows of the
  model's tables, or the runtime's limit.
GP267 A session whose caches have a fixed capacity was given more tokens than there is room for. Nothing was
  overwritten. Rewind or reset the session, or make the model with a larger capacity; compare such models over few
  steps (graphpass verify --steps).
GP268 graphpass converts ONNX to OpenVINO IR, not back: an IR is split into two IRs.
GP269 The result has no certificate: it was written with --no-verify, or not by graphpass. Convert the model again, with
  verification.
GP270 The text of a graph has a line that is not a statement, uses an undefined value, states a type that the operator
  does not have, or has an operator that the dialect lacks. The message has the line. `graphpass print` writes this
  form; docs/writing-passes.md describes it.
GP271 No node has this name or ends with it, or several do. `graphpass print MODEL` lists the nodes. --allow requires
  the whole name.
GP272 The model has no caches of this layer, or no values between its layers. `graphpass inspect` lists the layers.
GP273 The pass of --stop-after is not in the pipeline; the hint lists its passes.
GP274 graphpass.testing has no tiny model of this family; the hint lists those that it has.
GP275 The pipeline does not fail on the model in the way that --keeps names: different, slow, or the id of an error. The
  message has the actual result. Weights were replaced by noise, which hides failures that depend on the weights.
GP276 A new pass or target needs a name in kebab-case that no other one has, and a folder that does not exist yet.
GP301 The pass accepts models of the other format. Passes on OpenVINO IR come after to-openvino, passes on ONNX before
  it.
GP302 A precondition of the pass does not hold, for example make-stateful requires a stateless model. `graphpass explain
  PASS` lists the preconditions.
GP310 ONNX's or OpenVINO's checker rejects the graph, an operator lacks a required input, or a tensor is read or
  returned that is not computed; the message has the error. For an exported model this is an error of the exporter;
  after a pass it is a bug of the pass.
GP311 OpenVINO's ONNX frontend has no rule for some operators of the model; the message names them, their domains and
  nodes, and the hint the passes that lower them, where there are such.
GP312 OpenVINO's ONNX frontend failed to convert the model for another reason than an unknown operator; the message has
  its error.
GP313 The names of past and present of two caches concatenate to one variable id. Rename an input or an output.
GP314 Some past inputs have no present output, or the reverse, so the model does not carry them from step to step. A
  decoder exported for the prefill only (without past) has this form; use the one with past.
GP315 The kind of a cache cannot be inferred from the dataflow. `graphpass why MODEL CACHE` prints the rules that were
  tried; --cache declares the kind.
GP316 The initial state of a cache needs a size that the model does not fix. Give that dimension of the past input a
  fixed size.
GP317 No input besides the caches has a batch dimension, so the initial state cannot follow the batch.
GP318 The model has an input called beam_idx already, which make-stateful would add.
GP319 The model already has the inputs that insert-reorder adds, or already cuts its caches.
GP320 A decode session cannot determine what to feed to an input or a cache of this model, for example to the encoder
  states of a translation model.
GP321 The runtime fails to compile the model, or has no such device; the message has its error.
GP322 The runtime compiled the model but failed to run it; the message has its error.
GP323 The model processes a fixed number of tokens in a step, and was given another.
GP324 The output with the logits cannot be determined: no output is called logits, or that output is not [batch, length,
  vocabulary].
GP325 The model reads embeddings, and no model in its folder computes them from token ids: one whose only other input
  has features of images, and whose output has the right size. Feed the session embeddings, or pass a function to
  embed_with.
GP326 A cache has a fixed number of positions: new ones are written in place or replace old ones. Variables start empty
  and grow, so make-stateful does not support it.
GP327 An operator returns f16 or bf16 for any type of its inputs, so change-precision cannot convert the rest of the
  model to f32. Export the model in f32, or run a pipeline without this pass.
GP328 The model returns states for the next step, and no operator reads the inputs for them: its exporter traced a
  prompt. Export the model with a tool whose graphs continue the states, such as optimum-intel.
GP329 The export fixes the number of new tokens of each step to more than one, for example to that of the prompt it was
  traced with, or the number of positions before each step. Export the model with dynamic shapes.
GP330 The two models have no output in common that is not a cache, so there is nothing to compare.
GP331 The two models have different fixed batch sizes, so they cannot run on the same inputs.
GP332 The inputs of the model declare any number of new tokens, but a Squeeze removes their axis, which fails for more
  than one. Export the model for several tokens, or declare one token for a runtime that feeds one at a time.
GP338 The model is an encoder, an embedder or a reranker: it has no caches, and the target's runtime requires caches.
  Convert it for cpu, gpu or ort.
GP339 A local function of the ONNX model cannot be inlined: a call does not fit its inputs or outputs. Export the
  model without local functions.
GP340 A pass that replaces ONNX operators writes opset 13 and later, and the model imports an older one. Run
  upgrade-opset first.
GP341 An operator cannot be lowered to plain ones: it has an option that plain operators cannot express, or depends on
  an unknown size. The message has the operator, its node and the reason.
GP342 NPUW identifies caches by optimum's names, which state whether a cache stores keys, values, a convolution's window
  or a recurrent state. If the graph does not show the role, declare it with --cache NAME=KIND,role=ROLE; unpack splits
  a cache that stores several.
GP343 A variable that is not a cache has the name that a cache would get. Rename it, or remove it from the model.
GP344 A graph that was edited through `model.graphsurgeon()` cannot be written: its nodes form a cycle, or a sparse
  constant was changed in place. The model is unchanged.
GP345 A decoder reads caches of cross attention that another model fills, and that model is not named, does not return
  them, or needs inputs that neither the decoder nor the encoder has. Name the decoder for the first step of the same
  export.
GP346 The input of select-branch does not select a branch of the model.
GP347 An encoder cannot be run for a comparison: the shapes of its inputs are not known. Comparisons generate ids with a
  mask, and features of a fixed size.
GP348 openvino-tokenizers or transformers cannot read or convert the tokenizer beside the model. With
  --no-tokenizer the model is converted without it.
GP349 fix-input or drop-ports cannot change a port: the model has no input or output of that name, a dimension of the
  input varies, an operator reads it, or the output is that of a cache.
GP350 `graphpass convert` made a model that breaks the target's contract, mostly by attention that the runtime does not
  fuse with the cache. --allow-unfused writes it; `graphpass check` then reports each finding, the first node
  that prevents fusion, and the rule.
GP351 ONNX Runtime cannot compile or run the input of a conversion; the message has its error. The exporter, or a tool
  that rewrote the export, made an invalid model. Export it again, or convert the file from before that tool.
GP352 onnx.version_converter has no rule for an operator of the model, or the model has sparse initializers. Export the
  model in opset 13 or later.
GP360 The model has an input called tree_mask already, which add-tree-mask would add.
GP361 add-tree-mask and window-from-positions need the input position_ids, which has each draft token's depth, and the
  positions of tokens after masked ones. expose-position-ids adds it to an IR.
GP362 A cache cannot store a tree of draft tokens: the state of a linear cache follows one sequence, and a cache of
  fixed capacity does not append at its end. Verify chains of draft tokens with this model.
GP363 add-tree-mask cannot hide branches of a draft tree from each other in one of the model's attention blocks; the
  message names it and the reason. Other passes raise it if no input has the new tokens (input_ids, inputs_embeds).
GP364 window-from-positions cannot let a sliding window count positions of tokens: the model has no attention_mask
  from which they follow, the window is not a comparison in the mask of ScaledDotProductAttention, or the cache itself
  stores only the window.
GP365 Positions of a KV cache cannot be moved or cut inside the graph: it has a fixed capacity, stores no more than a
  window, or its sequence axis is unknown.
GP366 Targets ort, ort-genai, web and qnn write ONNX, and no pass converts OpenVINO IR to ONNX. Export the model to
  ONNX, or choose a target that runs IR.
GP367 The model's caches are cut in the form that OpenVINO 2026.4.1's GPU plugin fuses by a bug of its matcher. Other
  devices and versions drop the first position there, so only that plugin may run it. Convert without trim=begin-one for
  others.
GP368 insert-snapshot cannot store the earlier states of a linear cache: the model already has an input steps_back, or
  the cache has no initial value or has unknown axes. make-stateful gives variables initial values.
GP369 The model has an input that edits caches or masks draft trees, and NPUW fails on unknown inputs. Use the model
  before that pass; a session on NPU rewinds without such inputs.
GP370 A session cannot edit this model's caches in this way: linear caches combine all tokens and have no slots to
  reorder, a cache of unknown kind has unknown contents, and one of fixed capacity does not grow.
GP371 A session was given a draft tree, and the model does not support one: it has no input tree_mask, which the pass
  add-tree-mask adds, or it has linear caches, whose one state cannot follow several branches.
GP375 The model returns logits of the last position only, and verifying draft tokens needs those of all positions.
  Export it with the logits of all positions.
GP376 Padding would be read as tokens: the model has no input attention_mask. Or NPUW runs it, which stores position i
  in slot i of its caches, so it supports one sequence, without padding and with positions from 0. Feed the tokens
  alone; rewind to go back.
GP377 The drafter reads the target's hidden states, and the model does not return them. The pass expose-hidden-states
  adds them as outputs.
GP378 A head that drafts tokens has the inputs input_ids and states, and the outputs logits and states. This model has
  others.
GP379 A linear layer excludes padding by columns of attention_mask that are not those of the new tokens, so new tokens
  cannot be masked out. Feed padding and the tokens after it as one prompt, or run the pass extend-mask-to-past on the
  IR.
GP381 The layout of a cache cannot be inferred: an axis is none of those that attention shows (batch, heads, sequence,
  head_dim), or a shape has several interpretations. Sizes alone are not evidence: 2 may be blocks, heads, or key and
  value. Declare the axes, for example with --cache, or run unpack first.
GP382 Two layouts, or a layout and sizes, are incompatible: an axis is missing, keys and values of different sizes would
  share an axis, or there is no such layer, sequence, head or position.
GP383 Elements of a type of less than a byte share bytes, so places among them are not byte offsets. Use a type of
  whole bytes.
GP384 The model has inputs that address slots of its caches in the caches' own layout (dst_idx), so the layout cannot
  change afterwards. Run standardize-layout before insert-reorder.
GP385 quantize-weights converts weights of f32 products to 4 bits, and the model has no such MatMul: its products are
  Gemm, in f16, already quantized, or of two computed tensors. Leave its types unchanged, or run
  change-precision{to=f32} before.
GP386 Key and value cannot share one tensor: an operator besides the Concat of new positions reads or writes one of
  them, different operators append to them, or the size of a head is unknown. The message names the cache.
GP387 The states of a layer cannot share one flat tensor: the size of one is not fixed, its batch is not its first axis,
  its earlier states are stored by insert-snapshot (run pack before it), or they differ in type or reordering. The
  message names the cache.
GP388 The text form has no bodies of If and Loop, no local functions and no strings, so `graphpass reduce` cannot shrink
  the model. Run select-branch or inline-functions first.
GP389 Only GroupQueryAttention stores keys and values in 8 or 4 bits, if no other operator reads its past or present.
  The message names each attention with the obstacle. Fuse attention first, or leave the caches unchanged.
GP390 A cache with elements smaller than a byte cannot be transferred in place: rows would begin inside a byte. Store
  the cache in a type of whole bytes.
GP391 static-cache writes new positions in place if the model appends them to a cache by a Concat, or inside Attention
  or GroupQueryAttention, and if only attention reads the cache. This model does something else; the message has the
  reason.
GP392 A model of static shapes runs with unused slots, which its attention_mask excludes. This one reads them: a window
  or a position is counted in slots, or a state includes padding.
GP393 A dimension of the model is dynamic although all of its inputs are static: its size depends on values (NonZero, as
  experts are selected), or a cache is updated in a way that make-static does not support.
GP394 A session over a prefill and a decode model needs two models that graphpass split, or the pass make-static, made
  of one: the decode model with a length of 1.
GP395 There is not enough memory for the model, its caches or its logits in these sizes. Use smaller ones, compare over
  fewer tokens or not at all (--no-verify), or run it on a larger machine.
GP396 genai_config.json states the number of positions, the size of the vocabulary and tokens of images; neither the
  model nor the config.json beside it has them. Copy config.json beside the model, or set the positions with
  ort-genai{context=N}.
GP397 onnxruntime-genai's generic decoder supports models with token ids or embeddings, mask, positions and growing
  caches of keys and values as inputs, the caches named by layer and of one shape, and with logits as output. Embeddings
  need a model in the same folder that computes them. Target ort supports other models. Of models with an encoder and a
  decoder onnxruntime-genai runs those that read audio, such as Whisper, and none that read text.
GP398 f16 represents numbers up to 65504, bf16 up to 3.39e38, and a weight of the model is larger. Keep the model in
  f32, without the pass change-precision, and without precision=f16 or bf16.
GP399 transformers.js runs decoders whose inputs are token ids, mask, positions and keys and values under the names of
  its configs.js; browsers load files of weights below 2 GB. The message names the difference and the remedy. Target ort
  supports other models.
GP401 A pass raised an unexpected error. The input model is unchanged. Run with --verbose for the traceback, and report
  it to the pass's author.
GP402 A pass returned, but its result breaks a condition that the pass ensures. This is a bug of the pass.
GP403 Under --verify-each: the pass reports a change and made none, or the reverse. This is a bug of the pass.
GP404 Under --verify-each: after this pass the model computes different outputs than the pipeline's input. This is a bug
  of the pass; --dump writes the models before and after it.
GP405 The pipeline of a target completed, but its result breaks the target's contract. This is a bug of the target.
GP406 The process of a cell or a command ended without a result: it was killed for its use of memory, or a library
  crashed. Other cells are not affected. --jobs 1 gives a cell all memory; `graphpass convert` shows its output.
GP407 A cell or a command exceeded its timeout and was stopped. Nothing was written.
GP408 A cell failed by a bug of graphpass. `graphpass convert --verbose` with the same model and target shows where.
GP501 The file system refuses to write: no permission, no space, a file in place of a folder, or a device in place of a
  file. Nothing was changed.
GP502 A written file does not read back correctly, so it was discarded. Nothing was changed. OpenVINO writes some
  operators of ONNX Runtime that it cannot read: then the hint names the pass that lowers them. Otherwise it is a bug of
  graphpass or of the library that wrote it.
GP503 An ONNX file is limited to 2 GB, and this model's graph is larger even without its weights.
GP504 Another process wrote the same files at the same time. Its result is kept, and this one was discarded. Write to
  another folder, or run it again.
GP505 A result cannot be written to its address; the message has the storage's error. The earlier result is kept, or is
  incomplete and will be written again: files are a result only with their manifest.
GP601 The result of a pipeline does not compute the same as its input, so it was not written. --verify-each names the
  pass at fault.
GP602 The result is larger, or took longer, than the budgets of its cell, so it was not written. Raise the budget in the
  configuration, or find the growth with `graphpass diff`.
GP603 The result differs from the published one, which is an error by --fail-on changed. `graphpass diff` lists the
  differences.
GP604 The certificate of a result does not hold: files are missing, changed or added since verification, its manifest
  was edited, or it belongs to another reference. Convert the model again.
GP605 The configuration expects that a cell ends with an error, expect = "GP366", and it ended otherwise. Remove expect
  if the model can be converted now.
GP606 --require proven demands a result that is equal to its input for every input, and some operators were compared by
  numbers only. The message lists the first of them. Without the option the numbers decide.
"""

#: Meaning and remedy by error id.
CATALOG: dict[str, str] = {
    entry[:5]: " ".join(entry[6:].split()) for entry in re.split(r"\n(?=GP\d{3} )", _ENTRIES.strip())
}


def is_error_id(text: str) -> bool:
    """Return whether ``text`` looks like an error's id."""
    return re.fullmatch(r"GP\d+", text, re.IGNORECASE) is not None


def explain_error(error_id: str) -> str:
    """Return one paragraph about an error.

    Raises:
        UsageError: GP216, there is no such id.
    """
    name = error_id.upper()
    if name not in CATALOG:
        near = difflib.get_close_matches(name, CATALOG, n=3)
        raise UsageError("GP216", f"there is no error {name}", f"near it: {', '.join(near)}" if near else None)
    return f"{name}: {CATALOG[name]}"
