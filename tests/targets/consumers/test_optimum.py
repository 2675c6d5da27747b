"""optimum-intel pairs caches by prefixes of names, and finds linear states by substrings."""

import pytest
from support.cache_graphs import Renaming, renamed
from support.loaded import onnx_model, openvino_model
from support.quick_cases import model_files
from targets.consumers.views import view, views_of

CONSUMER = "optimum-intel"


def test_states_of_other_names_are_not_found():
    found = view(renamed(openvino_model("lfm2"), Renaming(3)), CONSUMER)
    assert found.verdict == "misreads"
    assert found.reasons[0].startswith("will not find the state ")
    assert found.reasons[0].endswith(
        "because its name does not contain cache_params.past.conv.N or cache_params.past.ssm.N"
    )
    assert {one.sees for one in found.caches} == {"kv", "nothing"}


def test_pasts_of_other_names_are_ordinary_inputs():
    found = view(renamed(onnx_model("llama"), Renaming(3)), CONSUMER)
    assert found.reasons[0].endswith(
        "an ordinary input because its name does not contain key_values, or no output remains for it"
    )


@pytest.mark.parametrize("path", [path for path in model_files() if "/ov-" in path])
def test_optimum_reads_its_own_exports(path):
    view = views_of(path)[2]["optimum-intel"]
    assert view.verdict == ("agrees" if views_of(path)[1].caches else "not applicable")


def test_optimum_pairs_merged_decoders_wrongly():
    view = views_of("t5/onnx/decoder_model_merged.onnx")[2]["optimum-intel"]
    assert view.verdict == "misreads"
    assert "past_key_values.1.decoder.key with present.0.encoder.key" in view.reasons[0]
