"""Explain each error id; ``graphpass explain GP203`` prints the entry."""

from __future__ import annotations

import difflib
import re

from graphpass.errors import UsageError

_ENTRIES = """
GP101 The path that was given as MODEL does not exist, or you may not look there. Check the spelling, and the folder
  that the command runs in. MODEL is an export on disk; export model ids of the Hugging Face hub first, for example by
  optimum-cli.
GP102 The file is neither an .onnx nor an .xml file. Of an OpenVINO IR name the .xml, of an ONNX model with external
  data the .onnx; weights are found from there.
GP103 The folder holds no .onnx and no .xml file besides tokenizer models. Exporters often write into a subfolder
  (onnx/): name that one.
GP104 The file is not an ONNX model, or not all of one: a download that broke off, a Git LFS pointer, another kind of
  file with that ending. Export or copy it again.
GP105 The ONNX model keeps weights in another file, and that file is missing, too short, outside the model's folder,
  or not to be read by this user. Copy it beside the .onnx file, under the name in the message.
GP106 The .xml file is damaged, no OpenVINO IR, or of a version that this OpenVINO cannot read.
GP107 An OpenVINO IR keeps its weights in a .bin file of the same name beside the .xml. It is missing, shorter than
  the .xml says, or this user may not read it.
GP108 The file with the pipeline, given as -p @FILE, does not exist or cannot be read as UTF-8 text.
GP109 What a user said of the model's caches is kept in its metadata, under graphpass.ir.cache (ONNX) or in the
  rt_info graphpass/caches (IR). What stands there was not written by graphpass, or was changed since.
GP110 A file that the model's weights lie in was replaced, edited or removed while graphpass worked on the model. What
  is in memory and what is on disk may be of two models, so nothing was written. Run it again.
GP111 A file that belongs to the model cannot be read; the message has the file system's words.
GP112 A tensor in the ONNX file says another size than its data has, or no type. The file is damaged, or was made to
  look like a model.
GP113 A file that belongs to the model, a .bin, a configuration or a tokenizer, is a link out of its folder. A model
  from elsewhere could pass on any file of this machine that way, so it is not followed.
GP114 The configuration of a matrix does not exist, or cannot be read as UTF-8 text.
GP115 A model or a result with an address (s3://, gs://) cannot be read; the message has the storage's words. Check the
  address, the credentials that its package takes, and the network.
GP116 A configuration beside the model is not a JSON object. Copy it again from the model's origin.
GP117 A session's state is read from a file that DecodeSession.save wrote, in safetensors. This one does not exist, is
  damaged, or is something else. Prefill again, and save again.
GP118 The graphpass.json beside a result is damaged, another program's, or of another version of graphpass, so that its
  certificate cannot be read. graphpass/reports/schemas/manifest.json describes it.
GP119 The ONNX model imports a version of operators that cannot be, has a function that calls itself, functions whose
  calls expand to over a million nodes, or bodies of nodes that nest over 16 deep. No exporter writes this: the file is
  damaged, or was made to harm.
GP120 The file is neither a bundle nor a case of `graphpass reduce`, or it is damaged.
GP201 The folder holds several models and none was chosen. Name the file itself. At a terminal graphpass asks.
GP202 A file name does not fit the model: results in ONNX end in .onnx, in OpenVINO IR in .xml. A pipeline with
  to-openvino makes an IR.
GP203 The result would overwrite the model that it is made from. graphpass never edits a model in place: write to
  another folder or file.
GP204 The folder of --dump lies in the output folder, which is not there yet and appears at once with all its
  files when the work is done. Make the output folder first, or dump into another one.
GP210 The text of the pipeline does not follow the grammar: names separated by commas, options in braces, for example
  to-openvino,make-stateful{beam-index=true}. The caret shows where. In a shell, put quotes around it.
GP211 No pass of that name is installed. `graphpass passes` lists those that are; plug-ins add theirs through the
  entry point group graphpass.passes.
GP212 The pass has no option of that name. Options are written in kebab-case; `graphpass explain PASS` lists them.
GP213 The option does not accept this value; the message has the type. Strings may stand in quotes, lists in brackets,
  nothing is written none.
GP214 The file is not TOML, or holds something besides [[pass]] tables, each with a name and the options of that pass
  as keys.
GP215 No target of that name is installed. `graphpass targets` lists those that are; plug-ins add theirs through the
  entry point group graphpass.targets.
GP216 There is no error with this id. Ids are printed after the word error, as in: error: GP203: ...
GP217 The model has no cache of this name, or several whose names begin so. `graphpass inspect --all` lists the
  caches; one goes by its own name, by that of its past input, or by that of its present output.
GP218 The text after --cache does not say what a cache is: NAME=KIND, then what is known, separated by commas: batch,
  heads, sequence and head_dim with the number of an axis counted from 0, and role. A kv cache needs its sequence
  axis: past_0=kv,sequence=2.
GP219 The declaration of a cache, by --cache or in the model, contradicts the graph; the message names the
  contradiction. Caches whose kind follows from the graph need no declaration.
GP220 Two installed distributions, or one and the running program, own a pass or target of the same name, so the name
  does not say which is meant. Uninstall or rename one of the two that the message names.
GP221 A plug-in owns the name but cannot be imported; the message has the distribution and the reason. Other passes
  and targets work all the same.
GP222 A plug-in's registration is wrong: the class is not a Pass or Target, its name differs from the entry point's, or
  one of its fields cannot be an option because it has no default or a type that cannot be written in a pipeline.
GP223 The target of a plug-in implements no rules (`Target.predict`), so `graphpass check` cannot predict its runtime.
  `graphpass targets` marks the targets that have rules.
GP224 cache=reorder asks for inputs that move slots of caches, and the target's runtime takes none: it keeps the
  caches outside of the model, or rewrites the model itself. Leave the option out, or choose another target.
GP225 A folder with an encoder needs a decoder for the first step and one for all others (decoder_model and
  decoder_with_past_model), both in one file (decoder_model_merged), or a stateful one, and all of one format. Optimum
  writes them for tasks that end in -with-past.
GP226 The target makes no models of an encoder and a decoder, or not with what was asked for: NPUs and paged attention
  take decoders alone, ONNX Runtime takes such models as they are, onnxruntime-genai keeps their caches in no integers,
  and nothing moves slots of them.
GP227 ONNX Runtime GenAI's builder splits such models differently: its encoder fills the caches of cross attention, as
  the target ort-genai requires. OpenVINO's runtimes require a decoder that does so. Export the model with optimum.
GP228 GRAPHPASS_GPU_ENVIRONMENT names a folder in which the GPU plugin is tried without a GPU: its Python is
  venv/bin/python, and env.sh sets what that needs. Let it name such a folder, or unset it.
GP229 The folder holds a language model and others that make its embeddings, in a format that the target does not take,
  and only the language model is converted. Name its file to convert it alone.
GP230 --weights share makes the result's weights a second name (a hard link) of the input's. That needs weights that
  lie in one file, and a result on the same file system. Write with --weights copy.
GP231 The configuration of a matrix is not well formed; the message has its file and line. The JSON Schema
  graphpass/reports/schemas/config.json says what may stand there, and editors complete it.
GP232 There is no graphpass.toml, and no pyproject.toml with [tool.graphpass], in this folder or one above it. Write
  one, or name one.
GP233 Two cells of a matrix have one name, or would write to one place, so one would overwrite the other. Give the
  models names, and let output hold {model} and {target}.
GP234 No cell of the matrix has a name that --select matches. Cells are called MODEL:TARGET; --dry-run lists
  them.
GP235 The file of --baseline is not a baseline that graphpass wrote, or a damaged one, which --update-baseline does not
  overwrite. Restore it from version control, or remove it.
GP236 An address names a protocol that fsspec does not know, or one that needs a package: pip install
  'graphpass[s3]', 'graphpass[gs]' or, for others, 'graphpass[remote]' and the package that fsspec lists.
GP237 Cells cannot be run on a Dask cluster: distributed is not installed, the scheduler does not answer, or its
  workers have other versions of graphpass and its libraries, whose results would differ.
GP240 A decode session was asked for with a backend that cannot run this model or device: ONNX Runtime runs ONNX on
  CPU and WEBGPU, and pairs of static shapes on QNN; OpenVINO runs its own devices.
GP241 An array given to a decode session has the wrong shape: token ids are [batch, length], masks cover all positions
  so far.
GP242 A step was given another batch than the one before, but the caches hold that batch: reset the session first. Or
  the model fixes its batch, and was given another.
GP243 Logits, hidden states, a snapshot or a saved state were asked for before the first forward pass.
GP244 `reorder` got slots that the session does not have, source and destination lists of different lengths, or two
  slots into one. Slots count from 0 to the session's length, less 1.
GP245 `trim` got more positions than the session has, or `rewind` a length that it does not have.
GP246 `select` got rows that the session does not have, no rows, or another number of rows than the
  model fixes. Rows count from 0.
GP247 The parents given with a step do not make a tree: there must be one for each new token, the index of another new
  token that stands before it, or -1 for the history.
GP248 A snapshot belongs to the session that took it, until that is reset or gets other adapter weights: the caches that
  it refers to are gone then.
GP249 The text is not a reorder as ONNX Runtime's OpenVINO execution provider takes it: sources and destinations,
  numbers with commas between them, a semicolon in the middle: 1,2,3;4,5,6.
GP238 The output folder holds a result with other graphs, such as that of another target. With both in it no runtime
  could open the folder. Write into another one, or remove the earlier result with --replace; files that graphpass did
  not write stay.
GP239 A file for ci merge-reports is not a JSON report that --report-json of this version wrote.
GP250 A comparison was asked for that cannot be run: no prompt, a token id outside the vocabulary, a negative number
  of steps, a tolerance that is not a number from 0 on, a budget that is neither time nor memory.
GP251 A session was given adapter weights (LoRA) for a variable that holds none, or in another shape. The session lists
  the variables as adapters.
GP252 A saved state holds the caches of one model, computed in one precision, so a session of another model or with
  other settings does not go on from it. Open the model that it is of, with the same settings.
GP253 A layer was named that the model does not have. Layers are those with caches, counted from 0 in the order in
  which tokens pass them; -1 is the last one.
GP261 Speculative decoding was asked for no tokens at all. Ask for at least one.
GP262 The draft for speculative decoding has a token id that the target model does not have. Draft model and
  target need the same tokens.
GP263 A drafter's number of tokens, or length of context, is 0 or negative. Both must be at least 1.
GP265 A cache cannot be handed over as asked: what is moved must fit into both layouts, both layouts into the buffer,
  and the buffer must be contiguous and writable.
GP266 A capacity, prompt or chunk is a number of positions: at least 1, and at most what it must fit into, what the
  tables of the model hold, or what runtimes count.
GP267 A session whose caches have a fixed capacity was given more tokens than there is room for. Nothing was
  overwritten. Rewind or reset the session, or make the model with a larger capacity; compare such models over few
  steps (graphpass verify --steps).
GP268 graphpass converts ONNX to OpenVINO IR, not back: an IR is split into two IRs.
GP269 A result without a certificate was to be checked: it was written with --no-verify, or by something else. Convert
  the model again, with verification.
GP270 The text of a graph has a line that is not a statement, names a value that no line above makes, states a type
  that the operator does not have, or asks for an operator that the dialect lacks. The message has the line.
  `graphpass print` shows the form.
GP271 No node has this name or ends with it, or several do. `graphpass print MODEL` lists the nodes.
GP272 The model has no caches of this layer, or no values between its layers. `graphpass inspect` lists the layers.
GP273 The pass of --stop-after is not in the pipeline; the hint lists its passes.
GP274 graphpass.testing has no tiny model of this family; the hint lists those that it has.
GP275 The pipeline does not fail on the model in the way that --keeps names; the message says how it ends. Weights were
  replaced by noise, and a pipeline that fails with the model's own weights alone cannot be reduced.
GP276 A new pass or target needs a name in kebab-case that no other one has, and a folder that does not exist yet.
GP301 The pass takes models of the other format. Passes on OpenVINO IR come after to-openvino, passes on ONNX before
  it.
GP302 Something that the pass needs to hold before does not hold, for example make-stateful on a model that is
  stateful already. `graphpass explain PASS` lists what it needs.
GP310 The graph is not well formed, in the words of ONNX's or OpenVINO's own checker. From a model as exported this
  points at the exporter; after a pass it is a bug of the pass.
GP311 OpenVINO's ONNX frontend has no rule for some operators of the model; the message names them, their domains and
  nodes, and the hint the passes that lower them, where there are such.
GP312 OpenVINO's ONNX frontend failed to convert the model for another reason than an unknown operator; the message
  has its words.
GP313 The names of past and present of two caches concatenate to one variable id. Rename an input or an output.
GP314 Some past inputs have no present output, or the reverse, so the model does not carry them from step to step. A
  decoder exported for the first step only (without past) is like that; take the one with past.
GP315 The kind of a cache does not follow from the dataflow. `graphpass why MODEL CACHE` prints the rule that
  is known of it.
GP316 The initial state of a cache needs a size that the model does not fix. Give that dimension of the past input a
  fixed size.
GP317 No input besides the caches has a batch dimension, so the initial state cannot follow the batch.
GP318 The model has an input called beam_idx already, which make-stateful would add.
GP319 The model has the inputs that insert-reorder adds already, or cuts its caches already.
GP320 A decode session does not know how to feed an input or a cache of this model, for example the encoder states of
  a translation model.
GP321 The runtime refuses to compile the model, or has no such device; the message has its words.
GP322 The runtime compiled the model but failed to run it; the message has its words.
GP323 The model takes a fixed number of tokens at a time, and was given another.
GP324 It is not clear which output holds the logits: none is called logits, or what is called so is not [batch,
  length, vocabulary].
GP325 A model takes embeddings, and nothing makes them of token ids: no one model in its folder takes ids alone and
  gives rows of the size that it takes. Feed the session embeddings, or give it a function with embed_with.
GP326 A cache always holds the same number of positions, because new ones are written in place or push old ones out.
  Variables start without positions and grow, so make-stateful does not take it.
GP327 An operator gives f16 or bf16 whatever its inputs are, so change-precision cannot make the rest of the model f32.
  Export the model in f32, or run a pipeline without this pass.
GP330 The two models have no output in common that is not a cache, so there is nothing to compare.
GP331 The two models have different fixed batch sizes, so they cannot run on the same inputs.
GP338 The model is an encoder, an embedder or a reranker: it keeps no caches, and the target's runtime runs models that
  keep some. Convert it for cpu, gpu or ort.
GP339 A local function of the ONNX model cannot be inlined: a call does not fit its inputs or outputs. Export the
  model without local functions.
GP340 A pass that replaces ONNX operators writes opset 13 and later, and the model imports an older one. Convert the
  model with onnx.version_converter first.
GP341 An operator cannot be written in plain ones: it has an option that plain operators do not express, or a size
  that is needed is not known. The message names the operator, its node and the reason.
GP342 NPUW knows caches by the names that optimum gives them, and those say whether a cache holds keys, values, a
  convolution's window or a recurrent state. If the graph does not show that, declare it with --cache
  NAME=KIND,role=ROLE; what holds several of them is taken apart by unpack.
GP343 A variable that is not a cache has the name that a cache would get. Rename it, or take it out of the model.
GP344 A graph that was edited through `model.graphsurgeon()` cannot be written: its nodes form a cycle, or a sparse
  constant was changed in place. The model is as it was before the edit.
GP345 A decoder reads caches of cross attention that another model fills, and that model is not named, does not return
  them, or needs inputs for them that the decoder, or the encoder that is to fill them, does not have. Name the decoder
  for the first step of the same export.
GP346 The input of select-branch does not select a branch of the model.
GP347 An encoder cannot be run for a comparison: the shapes of its inputs are not known. Ids with a mask, and
  features of a fixed size, can be made up.
GP348 openvino-tokenizers or transformers cannot read or convert the tokenizer that lies beside the model. With
  --no-tokenizer the model is converted without it.
GP349 fix-input replaces an input by a constant: the model has no input of that name, or a dimension of it varies.
GP350 `graphpass convert` made a model that the target's runtime would not run as the target promises: attention that
  it does not fuse with the cache, mostly. --allow-unfused writes it all the same, and `graphpass check` then names
  each place, the first node that is in the way, and the rule.
GP360 The model has an input called tree_mask already, which add-tree-mask would add.
GP361 add-tree-mask and window-from-positions need the input position_ids, which has each draft token's
  depth, and the positions of tokens after others that were masked out. expose-position-ids adds it to an IR.
GP362 A cache cannot hold a tree of draft tokens: the state of a linear one follows token after token, and one of
  fixed capacity holds new tokens elsewhere than at its end. Verify chains of draft tokens with this model.
GP363 add-tree-mask cannot hide branches of a draft tree from each other in one of the model's attentions; the message
  names it and the reason.
GP364 window-from-positions cannot let a sliding window count positions of tokens: the model has no attention_mask
  from which they follow, the window is not a comparison in the mask of ScaledDotProductAttention, or the cache itself
  keeps no more than the window.
GP365 Positions of a KV cache cannot be moved or cut inside the graph: it has a fixed capacity, keeps no more than a
  window, or it is not known which axis its positions are on.
GP366 Target ort writes ONNX, and nothing turns OpenVINO IR into ONNX. Export the model to ONNX, or choose a target
  that runs IR.
GP367 The model's caches are cut in the form that OpenVINO 2026.4.1's GPU plugin fuses by a bug of its matcher.
  Everything else drops the first position there, so only that plugin may run it: make another one for other devices
  and versions, without trim=begin-one.
GP368 insert-snapshot cannot keep the earlier states of a linear cache: the model has an input steps_back already, or
  the cache has no initial value or axes that are not known. make-stateful gives variables initial values.
GP369 The model has an input that edits caches or hides tokens of a draft tree, and NPUW fails on inputs that it does
  not know. Take the model as it was before that pass; a session on NPU goes back without such inputs.
GP370 A session cannot edit this model's caches as asked: linear caches hold what all tokens left and have no slots to
  reorder, a cache of unknown kind may hold anything, and one of fixed capacity does not grow by what is fed.
GP371 A session was given a draft tree, and the model cannot hold one: it has no input tree_mask, which the pass
  add-tree-mask adds, or it has linear caches, whose one state cannot follow several branches.
GP375 The model gives logits of the last position only, and checking drafted tokens needs those of all positions.
  Export it with the logits of all positions.
GP376 NPUW keeps position i in entry i of its caches, so it takes one sequence at a time, without padding and with
  positions counted from 0. Feed the tokens alone; rewind to go back.
GP377 A draft reads the target's hidden states, and the model gives none. The pass expose-hidden-states adds them as
  outputs.
GP378 A head that drafts tokens is a model with the inputs input_ids and states, and the outputs logits and states. This
  one has others.
GP379 A linear layer keeps padding out by columns of attention_mask that are not those of the new tokens, so that these
  cannot be hidden. Feed padding and tokens after it as one prompt, or run the pass extend-mask-to-past on the IR.
GP381 The layout of a cache cannot be inferred: an axis is none of those that attention shows (batch, heads, sequence,
  head_dim), or a shape leaves several readings. Sizes are never taken for a sign: 2 may be blocks, heads, or key and
  value. Say what is missing, for example with --cache, or run unpack first.
GP382 Two layouts, or a layout and sizes, do not fit: an axis is missing, keys and values of different sizes shall share
  an axis, or there is no such layer, sequence, head or position.
GP383 Elements of a type of less than a byte share bytes, so places among them are not byte offsets. Use a type of
  whole bytes.
GP384 The model has inputs that name slots of its caches in the caches' own layout (dst_idx), so the layout cannot
  change after them. Standardize the layout before insert-reorder.
GP385 quantize-weights stores weights of products in f32 in 4 bits, and no MatMul of the model is one: its products are
  Gemm, in f16, quantized already, or of two computed tensors. Leave its types unchanged, or run
  change-precision{to=f32} before.
GP386 Key and value cannot be carried in one tensor: something else than the Concat of new positions works on one of
  them, they are not appended to alike, or the size of a head is not known. The message names the cache.
GP387 The states of a layer cannot be carried in one flat tensor: the size of one is not fixed, its batch is not its
  first axis, its earlier states are kept by insert-snapshot (run pack before it), or they are of different types or
  reordered apart. The message names the cache.
GP388 The text form has no bodies of If and Loop, no functions of the model's own and no strings, so that
  `graphpass reduce` cannot shrink the model. Run select-branch or inline-functions first.
GP389 GroupQueryAttention alone keeps keys and values in 8 or 4 bits, if nothing else reads its past or present. The
  message names each attention with the obstacle. Fuse attention first, or leave the caches unchanged.
GP390 A cache whose elements are smaller than a byte cannot be handed over in place: rows would begin inside a byte.
  Keep the cache in a type of whole bytes.
GP391 static-cache writes new positions in place where the model appended them to a cache by a Concat, or inside
  Attention or GroupQueryAttention, and where attention alone reads the cache. Here something else is done.
GP392 A model of fixed shapes runs with slots that hold nothing, and hides them by its attention_mask. This one sees
  them all the same: a window or a position is counted in slots, or a state takes in padding.
GP393 A dimension of the model stays open though all of its inputs are of fixed shapes: its size depends on values
  (NonZero, as experts are chosen), or a cache is updated in a way that make-static does not know.
GP394 A session over a prefill and a decode model needs two models that were made of one by graphpass split, or by the
  pass make-static: the decode model with a length of 1.
GP395 There is not enough memory for the model, its caches or its logits in the sizes that were asked for. Ask for
  smaller ones, compare over fewer tokens or not at all (--no-verify), or run it where there is more.
GP396 genai_config.json holds the number of positions and of token ids, and neither the model nor the config.json beside
  it has them. Copy config.json beside the model, or name the positions with ort-genai{context=N}.
GP397 onnxruntime-genai's generic decoder takes token ids, mask, positions and caches of keys and values that grow,
  under names with the layer's number, all of one shape; logits go out. This model is another kind: target ort takes it.
  Of models of an encoder and a decoder it takes those that hear, as Whisper does, and none that read text.
GP398 f16 holds numbers up to 65504, bf16 up to 3.39e38, and a weight of the model holds a larger one. Leave the model
  in f32, without the pass change-precision, and without precision=f16 or bf16.
GP399 transformers.js loads decoders that take token ids, mask and positions, and keep keys and values under the names
  of its configs.js; browsers hold files of weights below 2 GB. The message names what this model lacks, and the
  remedy. Target ort takes other models.
GP401 A pass failed with an error that it did not foresee. The input model is as it was. Run with --verbose for the
  traceback, and report it to the pass's author.
GP402 A pass returned, but the model does not hold what the pass promises. This is a bug of the pass.
GP403 Under --verify-each: the pass says that it changed the model and it did not, or the reverse. This is a bug of
  the pass.
GP404 Under --verify-each: after this pass the model computes something else than the pipeline's input. This is a bug
  of the pass; --dump keeps the models before and after it.
GP405 The pipeline of a target ran, but its result is not what the target promises. This is a bug of the target.
GP406 The process of a cell or a command ended before it had a result: it ran out of memory and was killed, or a library
  brought it down. Other cells are not affected. --jobs 1 leaves it all memory; `graphpass convert` shows its output.
GP407 A cell or a command did not end within its timeout, so it was stopped. Nothing was written.
GP408 A cell failed by a bug of graphpass. `graphpass convert --verbose` with the same model and target shows where.
GP501 The file system refuses to write: no permission, no room, a file where a folder should be. Nothing was changed.
GP502 What was written does not read back as it should, so it was thrown away. Nothing was changed. OpenVINO writes
  some operators of ONNX Runtime's that it cannot read: then the hint names the pass that lowers them. All else is a
  bug of graphpass or of the library that wrote it.
GP503 An ONNX file cannot be over 2 GB, and this model's graph is even without its weights.
GP504 Another process wrote the same files while this one worked. Its result stays, and this one was thrown away.
  Write to another folder, or run it again.
GP505 A result cannot be written to its address; the message has the storage's words. What was published before stays,
  or is not a result any more and will be made again: files count if their manifest is there.
GP601 The result of a pipeline does not compute the same as its input, so it was not written. --verify-each names the
  pass at fault.
GP602 The result is larger, or took longer, than the budgets of its cell allow, so it was not written. Raise the budget
  in the configuration, or find out from `graphpass diff` what has grown.
GP603 The result differs from the one that was published last; --fail-on changed makes that an error. `graphpass diff`
  lists the differences.
GP604 The certificate of a result does not hold: files are missing, changed or added since it was proven, its manifest
  was edited, or it was proven against another model. Convert the model again.
GP605 The configuration expects that a cell ends with an error, expect = "GP366", and it ended otherwise. Remove
  expect if the model is converted by now.
GP606 --require proven demands a result that is equal to its input for every input, by structure, and some operators
  were compared by numbers alone. The message lists the first of them. Without the option numbers decide.
"""

#: Meaning and cure by error id.
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
