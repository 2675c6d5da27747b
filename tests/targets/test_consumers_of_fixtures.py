"""What others see in real exports, told by their rules and, where it can be observed, by themselves."""

import pytest
from support.quick_cases import model_files
from targets.consumers.views import views_of

CONSUMERS = ["openvino.genai", "optimum-intel", "ONNX Runtime OpenVINO EP", "onnxruntime-genai", "NPUW"]


@pytest.mark.parametrize("path", model_files())
def test_every_view_of_every_model_is_whole(path):
    _, inventory, views = views_of(path)
    assert list(views) == CONSUMERS
    for view in views.values():
        assert view.verdict == "agrees" or view.reasons
        assert [one.cache for one in view.caches] in ([], [cache.name for cache in inventory.caches])
        if view.verdict == "agrees":
            kinds = {cache.name: cache.kind for cache in inventory.caches if cache.kind != "cross"}
            assert {one.cache: one.sees for one in view.caches if one.cache in kinds} == kinds
        for reason in view.reasons:
            assert reason.strip() == reason
            assert not reason.endswith(".")


@pytest.mark.parametrize("path", [path for path in model_files() if "ov-state" not in path])
def test_openvino_consumers_have_no_verdict_on_onnx(path):
    views = views_of(path)[2]
    assert views["openvino.genai"].verdict in {"cannot tell", "not applicable"}
    assert views["NPUW"].verdict in {"cannot tell", "not applicable"}
