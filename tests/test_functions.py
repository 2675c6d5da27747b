"""Functions have at most 60 lines and 7 parameters, besides those that are listed here."""

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LINES, PARAMETERS = 60, 7

#: Options of commands and of the API are parameters by name.
OPTIONS = {
    "cli/ci.py:command",
    "cli/convert.py:command",
    "cli/verify.py:command",
    "graphpass/api/convert.py:convert",
    "graphpass/api/run_matrix.py:run_matrix",
    "graphpass/api/split.py:split",
    "graphpass/verify/models.py:verify",
}

#: To be split.
LONG = {"graphpass/jobs/convert.py:_convert", "graphpass/verify/compare_models.py:_compare"}

#: To get a dataclass of settings.
MANY = {
    "graphpass/jobs/convert.py:_convert",
    "graphpass/verify/compare_models.py:_compare",
    "graphpass/verify/compare_models.py:compare",
    "graphpass/verify/structure/tensors.py:__init__",
}


def functions():
    for room in ("graphpass", "passes", "cli"):
        for path in sorted((ROOT / room).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    yield f"{path.relative_to(ROOT)}:{node.name}", node


def lines(node):
    """The lines of a function without its docstring, which may be as long as its arguments need."""
    first = node.body[0]
    is_documented = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    docstring = first.end_lineno - first.lineno + 1 if is_documented else 0
    return node.end_lineno - node.lineno + 1 - docstring


def test_functions_are_short():
    found = {name for name, node in functions() if lines(node) > LINES}
    assert found <= LONG


def test_functions_have_few_parameters():
    found = set()
    for name, node in functions():
        parameters = [one.arg for one in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
        if len(parameters) - (parameters[:1] in (["self"], ["cls"])) > PARAMETERS:
            found.add(name)
    assert found <= OPTIONS | MANY
