"""Views of one consumer."""

import functools

from support.models import fixtures
from support.quick_cases import model_files

import graphpass
from graphpass.targets.consumers import view_caches


def view(model, consumer):
    inventory = graphpass.analyze_caches(model)
    return next(view for view in view_caches(model, inventory) if view.consumer == consumer)


@functools.cache
def views_of(path):
    model = graphpass.load(fixtures() / path)
    inventory = graphpass.analyze_caches(model)
    return model, inventory, {view.consumer: view for view in view_caches(model, inventory)}


ENCODER_DECODERS = ("t5", "whisper")


HYBRIDS = ("granitemoehybrid", "lfm2", "qwen3_next")


STATEFUL = [path for path in model_files() if "ov-stateful" in path and not path.startswith(ENCODER_DECODERS)]
