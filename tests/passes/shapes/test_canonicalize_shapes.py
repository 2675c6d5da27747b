"""canonicalize-shapes: what OpenVINO's frontend for torch.export writes, as others write it."""

from support.models import exporters

import graphpass
from graphpass.io import load
from graphpass.passes.shapes.canonicalize_shapes import CanonicalizeShapes, counted, expanded
from graphpass.verify import compare


def test_exports_of_torch_export_compute_the_same():
    given = load(exporters("transformers-ov", "llama"))
    result = graphpass.PassManager((CanonicalizeShapes(),)).run(given)
    assert result.records[-1].result.statistics == {"expansions": 5, "ranges counted in integers": 3}
    assert not [*expanded(result.model.graph), *counted(result.model.graph)]
    assert compare(given, result.model, steps=3).passed
