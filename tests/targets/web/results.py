"""Results of the target web."""

from __future__ import annotations

import json

from graphpass.engine.pipeline import parse_target


def config_of(model, target="web"):
    return json.loads(parse_target(target).files(model, model.path)["config.json"])


def ports(model):
    return [port.name for port in (*model.inputs, *model.outputs) if port.name.startswith(("past", "present"))]
