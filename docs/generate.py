"""Write the pages of ``docs/`` that follow from the code: ``make docs``.

Docstrings, option fields, the error catalog, pipelines of fixture models and JSON schemas are the sources; a test
compares the pages with them.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import importlib.util
import json
import re
import textwrap
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import graphpass
from graphpass import errors
from graphpass.engine.options import documentation, options_of
from graphpass.engine.passes import Pass
from graphpass.engine.pipeline import format_passes, format_target, parse_target
from graphpass.engine.target import Target
from graphpass.error_catalog import CATALOG
from graphpass.errors import GraphpassError

FOLDER = Path(__file__).resolve().parent

MARK = "<!-- Written by `make docs` from the code. Edit the docstrings, not this page. -->"

#: Fixture models whose pipelines `targets.md` shows, after what they are.
EXAMPLES = {
    "llama": ("llama/onnx", "ONNX as optimum exports it"),
    "llama-genai": ("llama/onnx-genai", "ONNX of the onnxruntime-genai builder, with GroupQueryAttention"),
    "qwen3_moe": ("qwen3_moe/onnx", "ONNX with a mixture of experts"),
    "zamba2": ("zamba2/ov-stateful", "stateful IR, a hybrid whose mask covers only the new tokens"),
    "nemotron_h": ("exporters/transformers-onnx/nemotron_h", "ONNX of transformers 5, a hybrid with Mamba-2 in chunks"),
    "lfm2": ("lfm2/ov-stateful", "stateful IR, a hybrid of attention and convolutions"),
    "t5": ("t5/onnx/decoder_with_past_model.onnx", "ONNX, a decoder of an encoder-decoder"),
}

SCHEMAS = {
    "inspect": "graphpass inspect MODEL --format json",
    "check": "graphpass check MODEL --target TARGET --format json",
    "verify": "graphpass verify REFERENCE CANDIDATE --format json",
    "diff": "graphpass diff A B --format json",
    "result": "graphpass convert MODEL -o DIR --target TARGET --format json",
    "split": "graphpass split MODEL -o DIR --format json",
    "why": "graphpass why MODEL CACHE --format json",
    "passes": "graphpass passes --format json",
    "targets": "graphpass targets --format json",
    "devices": "graphpass devices --format json",
    "explain": "graphpass explain NAME --format json",
    "ci": "graphpass ci --format json",
    "plan": "graphpass ci --dry-run --format json",
    "config": "graphpass.toml",
    "manifest": "graphpass.json",
    "error": "graphpass COMMAND --format json",
}

INTRODUCTIONS = {
    "passes": """# Passes

A pass rewrites a model in place and reports what it did. `graphpass run MODEL -o OUT -p PIPELINE` runs passes of your
choice, for example `-p 'to-openvino,make-stateful{beam-index=true}'`; `graphpass explain PASS` prints an entry of this
page; [targets](targets.md) have pipelines of their own. Shapes in brackets name axes.
""",
    "targets": """# Targets

A target is a runtime and a device. It has a pipeline that converts models, a contract on the result, rules that predict
how the runtime executes each attention block and cache, and a trial that observes it. `graphpass convert MODEL -o DIR
--target 'gpu{cache=reorder}'` runs the pipeline, checks the contract and verifies the result; `graphpass check` only
checks the contract, see [verification](verification.md#contracts). A package may add [targets of its
own](../CONTRIBUTING.md#a-target).
""",
    "pipelines": """## Pipelines

A pipeline depends on the model, and passes that find nothing to do leave it unchanged. The tables list the passes in
order, with the targets and the example models for which they run. Two passes run for other models only:
`select-branch` on merged decoders, and `unpack` if a cache packs key and value, or several states.
""",
    "errors": """# Errors

An error names the file, node or dimension, gives a hint, and has an id that never changes its meaning: `graphpass
explain GP203` prints an entry of this page. The first digit decides the exit code.
""",
    "json": """# JSON

The fields of all JSON that graphpass reads and writes. The schemas are installed with the package,
`graphpass/reports/schemas/*.json` (JSON Schema 2020-12), and tests validate the output of the commands with them. A
field is always present unless it is optional.
""",
}

#: Cells of the table of proofs, with their meaning.
PROOF_CELLS = [
    ("equal", "equal for every input"),
    ("without padding", "equal for every input without padding"),
    ("`248 of 259`", "248 of 259 operators are equal for every input without padding"),
    ("`0 of 0`", "the structures cannot be compared"),
    ("empty", "the target refuses the model"),
]

#: Variables of masks, with their meaning.
MASK_VARIABLES = [
    ("`b`", "row of the batch"),
    ("`q`", "index of the query among the new tokens"),
    ("`k`", "index of the key among past and new positions"),
    ("`past`", "positions in the caches before the step"),
    ("`length`", "new tokens"),
    ("`summed`", "index of a sum, up to and including the bound"),
]

_ID = re.compile(r"\bGP\d{3}\b")


def pages() -> dict[str, str]:
    """Return the text of each generated page, by its file name."""
    found = {
        "passes.md": passes_page(),
        "targets.md": targets_page(),
        "errors.md": errors_page(),
        "json.md": json_page(),
        "masks.md": masks_page(),
        "proofs.md": proofs_page(),
    }
    return {name: re.sub(r"\n{3,}", "\n\n", f"{MARK}\n\n{text.rstrip()}\n") for name, text in found.items()}


def own_passes() -> dict[str, list[type[Pass[Any]]]]:
    """Return the passes of graphpass itself by folder; installed plug-ins are left out."""
    found: dict[str, list[type[Pass[Any]]]] = defaultdict(list)
    for name in graphpass.pass_names():
        one = graphpass.get_pass(name)
        if one.__module__.startswith("graphpass."):
            found[one.__module__.split(".")[2]].append(one)
    return dict(sorted(found.items()))


def own_targets() -> list[Target]:
    """Return the targets of graphpass itself."""
    found = [graphpass.get_target(name) for name in graphpass.target_names()]
    return [one for one in found if type(one).__module__.startswith("graphpass.")]


def passes_page() -> str:
    """Return the page of all passes."""
    folders = own_passes()
    lines = [INTRODUCTIONS["passes"]]
    for folder, passes in folders.items():
        title = importlib.import_module(f"graphpass.passes.{folder}").__doc__ or folder
        lines += ["", f"**{folder}**: {title.strip()}", ""]
        lines += [
            f"- [`{one.name}`](#{one.name}): {markdown(documentation(one)).partition(chr(10))[0]}" for one in passes
        ]
    for folder, passes in folders.items():
        lines += ["", f"## {folder}"]
        for one in passes:
            lines += ["", *_pass(one)]
    return "\n".join(lines)


def _pass(one: type[Pass[Any]]) -> Iterator[str]:
    yield f"### {one.name}"
    yield ""
    facts = [f"Accepts {'ONNX' if one.dialect == 'onnx' else 'OpenVINO IR' if one.dialect else 'ONNX and OpenVINO IR'}"]
    for word, conditions in (("requires", one.requires), ("only for", one.only_for), ("ensures", one.ensures)):
        if conditions:
            facts.append(f"{word}: {', '.join(condition.name for condition in conditions)}")
    yield from (f"*{'; '.join(facts)}.*", "")
    yield from _documented(one)


def _documented(one: type) -> Iterator[str]:
    """Yield a docstring in Markdown, with the options in a table."""
    options = options_of(one)
    for section, body in _sections(documentation(one)):
        if section in {"Options", "Attributes"}:
            continue
        if section in {"Before", "After"}:
            yield from (f"{section}:", "", "```text", body, "```", "")
        elif section == "Raises":
            yield from ("Errors:", "", *(f"- {_linked(item)}" for item in _items(body)), "")
        elif section:
            yield from (f"{section}: {markdown(' '.join(body.split()))}", "")
        else:
            yield from (markdown(body), "")
    if options:
        rows = [(f"`{o.name}`", f"`{o.type.text}`", f"`{o.default_text}`", markdown(o.doc)) for o in options]
        yield from _table(("option", "type", "default", "meaning"), rows)


def _sections(doc: str) -> Iterator[tuple[str, str]]:
    """Yield the sections of a docstring with their titles, and what stands between them without."""
    for block in re.split(r"\n(?=[A-Z]\w+:\n )|\n\n(?=\S)", doc):
        title, _, rest = block.partition(":\n")
        if re.fullmatch(r"[A-Z]\w+", title) and rest.startswith(" "):
            yield title, textwrap.dedent(rest).strip("\n")
        elif block.strip():
            yield "", block.strip("\n")


def _items(body: str) -> list[str]:
    """Return the entries of a section whose further lines are indented."""
    return [" ".join(item.split()) for item in re.split(r"\n(?=\S)", body)]


def targets_page() -> str:
    """Return the page of all targets."""
    lines = [INTRODUCTIONS["targets"]]
    targets = own_targets()
    rows = [(f"[`{one.name}`](#{one.name})", one.description, f"`{one.output_file}`") for one in targets]
    lines += [*_table(("target", "for", "writes"), rows), ""]
    for one in targets:
        contract = ", ".join(condition.name for condition in one.contract) or "nothing"
        rules = "predicts the runtime" if one.has_rules else "has no rules"
        trial = "runs a trial" if type(one).observe is not Target.observe else "has no trial"
        lines += [f"## {one.name}", "", *_documented(type(one)), ""]
        lines += [f"Contract: {contract}. `graphpass check` {rules} and {trial}.", ""]
    lines += [INTRODUCTIONS["pipelines"], *(f"- {name}: {words}" for name, (_, words) in EXAMPLES.items()), ""]
    models = {name: graphpass.load(_fixture(path)) for name, (path, _) in EXAMPLES.items()}
    grouped: dict[type[Target], list[Target]] = defaultdict(list)
    for one in targets:
        base = type(one).__mro__[1]
        grouped[type(one) if base is Target else base].append(one)
    for base, group in grouped.items():
        lines += [f"### Pipeline of {', '.join(one.name for one in group)}", ""]
        if base is not type(group[0]):
            lines += [markdown(body) + "\n" for section, body in _sections(documentation(base)) if not section]
        lines += _pipelines(group, models)
    return "\n".join(lines)


def _pipelines(targets: Sequence[Target], models: Mapping[str, graphpass.Model]) -> Iterator[str]:
    """Yield a table of the passes that some targets and their options run, in an order that fits all pipelines."""
    users: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    before: dict[str, set[str]] = defaultdict(set)
    refused: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for target in (variant for one in targets for variant in (one, *_variants(one))):
        label = format_target(target)
        for example, model in models.items():
            try:
                passes = _texts(target, example, model)
            except GraphpassError as error:
                by_label = refused[f"{_linked(error.id)}, {error.message}"]
                if example not in by_label[target.name]:
                    by_label[label].append(example)
                continue
            for place, text in enumerate(passes):
                users[text][label].append(example)
                before[text].update(passes[:place])
    yield from _table(("pass", "targets", "examples", "does"), _in_order(users, before, len(targets), len(models)))
    if refused:
        yield from ("", "Refused:", "")
        for why, by_label in refused.items():
            whom = [f"`{label}` ({', '.join(examples)})" for label, examples in by_label.items() if examples]
            yield f"- {', '.join(whom)}: {why}"
    yield ""


def _in_order(
    users: Mapping[str, Mapping[str, list[str]]], before: Mapping[str, set[str]], targets: int, models: int
) -> Iterator[tuple[str, ...]]:
    """Yield a row for each pass, after all that run before it in any pipeline."""
    placed: set[str] = set()
    while len(placed) < len(users):
        text = next(one for one in users if one not in placed and before[one] <= placed)
        placed.add(text)
        name = text.partition("{")[0]
        labels = [one for one in users[text] if "{" not in one]
        whom = "all" if len(labels) == targets else ", ".join(f"`{one}`" for one in labels or users[text])
        examples = dict.fromkeys(one for label in labels or users[text] for one in users[text][label])
        summary = markdown(documentation(graphpass.get_pass(name)).partition("\n")[0])
        yield _pass_link(name, text), whom, "all" if len(examples) == models else ", ".join(examples), summary


def _variants(target: Target) -> Iterator[Target]:
    """Yield a target with each other choice of one of its options."""
    for option in options_of(type(target)):
        for choice in option.type.choices:
            if choice != option.default_text:
                with contextlib.suppress(GraphpassError):
                    yield parse_target(f"{target.name}{{{option.name}={choice}}}")


def _texts(target: Target, example: str, model: graphpass.Model) -> list[str]:
    """Return the passes of a pipeline as text, without paths of this machine."""
    path = EXAMPLES[example][0]
    if path.endswith("_with_past_model.onnx"):
        first = _fixture(path.replace("_with_past", ""))
        passes = target.decoder_pipeline(model, first)
    else:
        passes = target.pipeline(model)
    return [re.sub(r"=[^,{}]*/[^,{}]*", "=..", format_passes([one])) for one in passes]


def _pass_link(name: str, text: str = "") -> str:
    return f"[`{text or name}`](passes.md#{name})"


def _fixture(path: str) -> Path:
    """Return a model of `fixtures/models.tar.xz`, or of `fixtures/exporters.tar.xz` below ``exporters``."""
    spec = importlib.util.spec_from_file_location("fixture_archive", FOLDER.parent / "fixtures" / "archive.py")
    assert spec is not None
    assert spec.loader is not None
    archive = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(archive)
    folder, _, inside = path.partition("/")
    if folder != "exporters":
        return Path(archive.unpack()) / path
    return Path(archive.unpack(FOLDER.parent / "build" / folder, archive.HERE / "exporters.tar.xz")) / inside


def errors_page() -> str:
    """Return the page of all errors."""
    lines = [INTRODUCTIONS["errors"]]
    groups = re.findall(r"^(GP\dxx) +(.*?)  +(\d)$", errors.__doc__ or "", re.MULTILINE)
    lines += [*_table(("ids", "meaning", "exit code"), groups), ""]
    passes = [one for some in own_passes().values() for one in some]
    raised = messages()
    for ids, meaning, code in groups:
        lines += [f"## {ids}: {meaning}", "", f"Exit code {code}.", ""]
        for name in sorted(name for name in CATALOG if name[:3] == ids[:3]):
            lines += [f"### {name}", "", CATALOG[name].replace("<", "\\<"), ""]
            lines += [*(f"- {_code(message)}" for message in raised[name]), *([""] if raised[name] else [])]
            by = [_pass_link(one.name) for one in passes if name in _ID.findall(documentation(one))]
            lines += [f"Raised by {', '.join(by)}.", ""] if by else []
    return "\n".join(lines)


def messages() -> Mapping[str, list[str]]:
    """Return the messages of each error as in the source, with placeholders in braces."""
    found: dict[str, set[str]] = defaultdict(set)
    packages = (importlib.import_module(name) for name in ("graphpass", "graphpass.passes", "graphpass.cli"))
    for file in sorted({file for package in packages for file in Path(package.__path__[0]).rglob("*.py")}):
        for function in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(function, ast.FunctionDef):
                for name, message in _raised(function):
                    found[name].add(message)
    return defaultdict(list, {name: sorted(texts) for name, texts in found.items()})


def _raised(function: ast.FunctionDef) -> Iterator[tuple[str, str]]:
    """Yield ids and messages of the errors that a function makes."""
    named: dict[str, list[ast.Assign]] = defaultdict(list)
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            named[node.targets[0].id].append(node)
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and len(node.args) > 1 and isinstance(node.args[0], ast.Constant):
            words = node.args[1]
            if isinstance(words, ast.Name):
                assigned = [one for one in named[words.id] if one.lineno < node.lineno]
                words = max(assigned, key=lambda one: one.lineno).value if assigned else words
            template = _template(words).partition("\n")[0]
            if " " in template and _ID.fullmatch(str(node.args[0].value)):
                yield str(node.args[0].value), template


def _template(words: ast.expr) -> str:
    if isinstance(words, ast.JoinedStr):
        return "".join(_template(part) for part in words.values)
    if isinstance(words, ast.FormattedValue):
        value = words.value.func if isinstance(words.value, ast.Call) else words.value
        last = value.attr if isinstance(value, ast.Attribute) else value.id if isinstance(value, ast.Name) else ""
        return f"{{{last.strip('_') or '..'}}}"
    return words.value if isinstance(words, ast.Constant) and isinstance(words.value, str) else ""


def json_page() -> str:
    """Return the page of all JSON that graphpass writes."""
    lines = [INTRODUCTIONS["json"]]
    for name, command in SCHEMAS.items():
        schema = json.loads(resources.files("graphpass.reports").joinpath(f"schemas/{name}.json").read_text("utf-8"))
        lines += ["", f"## {name}", "", f"`{command}`: {schema['description']}", ""]
        lines += _object(schema.get("items", schema))
        for part, inner in schema.get("$defs", {}).items():
            if inner.get("properties") or inner.get("items", {}).get("properties"):
                lines += ["", f"### {name}: {part}", ""]
                lines += [inner["description"], ""] if "description" in inner else []
                lines += _object(inner if "properties" in inner else inner["items"])
    return "\n".join(lines)


def _object(schema: Mapping[str, Any]) -> list[str]:
    return _table(("field", "type", "meaning"), list(_fields(schema, "")))


def _fields(schema: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, str, str]]:
    for name, field in schema["properties"].items():
        shown = f"`{prefix}{name}`" + ("" if name in schema.get("required", ()) else " (optional)")
        yield shown, _type(field), field.get("description", "")
        for inner, mark in ((field, ""), (field.get("items", {}), "[]"), (field.get("additionalProperties"), ".*")):
            if isinstance(inner, dict) and "properties" in inner:
                yield from _fields(inner, f"{prefix}{name}{mark}.")


def _type(field: Mapping[str, Any]) -> str:
    """Return the type of a field in words."""
    if "$ref" in field:
        return str(field["$ref"]).rpartition("/")[2]
    if "enum" in field:
        return ", ".join(f"`{json.dumps(value)}`" for value in field["enum"])
    if "anyOf" in field:
        return " or ".join(_type(one) for one in field["anyOf"])
    given = field.get("type", "any")
    kinds = [given] if isinstance(given, str) else given
    items = f" of {_type(field['items'])}" if "items" in field and "properties" not in field["items"] else ""
    values = field.get("additionalProperties")
    held = f" of {_type(values)}" if isinstance(values, dict) and "properties" not in values else ""
    return " or ".join(f"{kind}{items if kind == 'array' else held if kind == 'object' else ''}" for kind in kinds)


def markdown(text: str) -> str:
    """Return the text of a docstring in Markdown; tables stay tables."""
    escaped = re.sub(r"(``.*?``|`[^`]*`)|([<|*])", _escaped, text, flags=re.DOTALL)
    return re.sub(r"^\\\|.*$", lambda row: row[0].replace(r"\|", "|"), escaped, flags=re.MULTILINE)


def _escaped(found: re.Match[str]) -> str:
    return f"\\{found[2]}" if found[2] else found[1].replace("``", "`")


def _linked(text: str) -> str:
    return _ID.sub(lambda found: f"[{found[0]}](errors.md#{found[0].lower()})", markdown(text))


def _code(text: str) -> str:
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    body = [[cell.replace("|", "\\|").replace("\\\\|", "\\|") for cell in row] for row in rows]
    return [_row(head), _row(["---"] * len(head)).replace(" ", ""), *map(_row, body)]


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def masks_page() -> str:
    """Return the page on the masks that are known, of fixtures and of other exports."""
    held = json.loads((FOLDER.parent / "tests" / "golden" / "masks.json").read_text("utf-8"))
    rows = {name: row for group in held.values() for name, row in group.items() if row}
    by_mask: dict[str, list[str]] = defaultdict(list)
    misses = []
    for name, row in rows.items():
        for mask in row["masks"]:
            by_mask[mask].append(name)
        misses += [(name, f"{row['attention'] - row['known']} of {row['attention']}", miss) for miss in row["misses"]]
    known, total = (sum(row[key] for row in rows.values()) for key in ("known", "attention"))
    ordered = sorted(by_mask.items(), key=lambda found: (-len(found[1]), found[0]))
    known_masks = [(_code(mask), ", ".join(names)) for mask, names in ordered]
    lines = [
        "# Masks of attention",
        "",
        "[Verification](verification.md) derives the effective mask of each attention block as an expression, and",
        "compares the expressions of both models for every batch, past and length. This page lists the masks of",
        f"the fixtures and of {len(held['others'])} other exports. {known} of {total} masks are known.",
        "",
        *_table(("variable", "meaning"), MASK_VARIABLES),
        "",
        "## Known masks",
        "",
        "Fixtures are named by file, other exports by exporter and family.",
        "",
        *_table(("a query attends to a key if", "exports"), known_masks),
        "",
        "## Unknown masks",
        "",
        "These masks are compared by their values at sampled lengths.",
        "",
        *_table(("export", "blocks", "operator and reason"), ((*found, markdown(miss)) for *found, miss in misses)),
    ]
    return "\n".join(lines)


def proofs_page() -> str:
    """Return the page on recorded results that are equal to their reference for every input."""
    held = json.loads((FOLDER.parent / "tests" / "golden" / "structure.json").read_text("utf-8"))
    by_export: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)
    left: dict[tuple[str, str], list[str]] = defaultdict(list)
    for name, row in held.items():
        export, _, target = name.partition(":")
        by_export[export][target] = row
        if row["operators"] != row["unpadded"] or not row["operators"]:
            left[export, row["left"][0]].append(_code(target))
    targets = sorted({target for rows in by_export.values() for target in rows})
    whole = [row for row in held.values() if row["operators"] == row["unpadded"] > 0]
    padded = [row for row in whole if row["equal"] == row["operators"]]
    lines = [
        "# Results that are equal for every input",
        "",
        f"`convert` was run on each fixture for each target. Of {len(held)} results, {len(padded)} are equal to",
        f"their model [for every input](verification.md#for-every-input), and {len(whole) - len(padded)} more for",
        "every input without padding.",
        "",
        *_table(("cell", "meaning"), PROOF_CELLS),
        "",
        "## Results",
        "",
        *_table(
            ("export", *map(_code, targets)),
            ((name, *(_proven(rows.get(target)) for target in targets)) for name, rows in sorted(by_export.items())),
        ),
        "",
        "## Compared by numbers",
        "",
        "For each of the other results, the first operator without an equal value in the reference.",
        "The logits of these results were compared by running both models.",
        "",
        *_table(
            ("export", "targets", "operator and reason"),
            ((name, ", ".join(found), markdown(first)) for (name, first), found in sorted(left.items())),
        ),
    ]
    return "\n".join(lines)


def _proven(row: dict[str, Any] | None) -> str:
    if row is None:
        return ""
    if row["operators"] and row["operators"] == row["equal"]:
        return "equal"
    is_complete = row["operators"] and row["operators"] == row["unpadded"]
    return "without padding" if is_complete else f"{row['unpadded']} of {row['operators']}"


if __name__ == "__main__":
    for page, written in pages().items():
        (FOLDER / page).write_text(written, encoding="utf-8")
