"""Passes and targets as JSON; those that cannot be imported have an error in place of the rest."""

import pytest

from graphpass.engine.registry import get_pass
from graphpass.errors import UsageError
from graphpass.reports import registered


def test_options_have_their_type_default_and_choices():
    entry = registered.pass_json(get_pass("insert-reorder"))
    form = next(option for option in entry["options"] if option["name"] == "form")
    assert form["default"] in form["choices"]
    assert form["type"] == " | ".join(form["choices"])
    assert entry["documentation"].startswith(entry["summary"])


@pytest.mark.parametrize(("kind", "names"), [("pass", ("to-openvino", "fuse-attention")), ("target", ("cpu", "gpu"))])
def test_one_that_fails_does_not_hide_the_others(monkeypatch, kind, names):
    usable = getattr(registered, f"get_{kind}")

    def failing(name):
        if name == names[0]:
            raise UsageError("GP222", "it has no default")
        return usable(name)

    monkeypatch.setattr(registered, f"get_{kind}", failing)
    monkeypatch.setattr(registered, f"{kind}_names", lambda: names)
    (entries,) = (registered.passes_json() if kind == "pass" else registered.targets_json()).values()
    assert [entry["error"] for entry in entries] == ["GP222: it has no default", None]
    assert [entry["name"] for entry in entries] == list(names)
