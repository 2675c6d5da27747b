"""Names of caches by configuration, as `getCacheNames` of transformers.js gives them."""

import pytest

from graphpass.targets.web.configs import Caches, configured_caches, like

DENSE = frozenset({"key", "value"})
STATES = frozenset({"conv", "recurrent"})


@pytest.mark.parametrize(
    ("config", "layers", "recurrent"),
    [
        ({"model_type": "llama", "num_hidden_layers": 2}, {0: DENSE, 1: DENSE}, "recurrent"),
        ({"model_type": "gpt2", "n_layer": 1, "num_hidden_layers": 9}, {0: DENSE}, "recurrent"),
        ({"model_type": "mpt", "n_layers": 1}, {0: DENSE}, "recurrent"),
        ({"model_type": "lfm2", "layer_types": ["conv", "full_attention"]}, {0: {"conv"}, 1: DENSE}, "recurrent"),
        (
            {"model_type": "qwen3_next", "layer_types": ["linear_attention", "full_attention"]},
            {0: STATES, 1: DENSE},
            "recurrent",
        ),
        ({"model_type": "falcon_h1", "num_hidden_layers": 1}, {0: DENSE | STATES}, "ssm"),
        (
            {"model_type": "nemotron_h", "layers_block_type": ["mamba", "mlp", "attention"]},
            {0: STATES, 2: DENSE},
            "ssm",
        ),
        ({"model_type": "nemotron_h", "layers_block_type": ["linear_attention", "mlp", "full_attention"]}, {}, "ssm"),
    ],
)
def test_caches_of_a_config_are_counted(config, layers, recurrent):
    assert configured_caches(config) == Caches(layers, recurrent)


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"model_type": "mamba", "num_hidden_layers": 2},
        {"model_type": "llama"},
        {"model_type": "falcon", "num_hidden_layers": 2, "multi_query": True},
        {"model_type": "qwen3_5_text", "layer_types": ["linear_attention"]},
    ],
)
def test_types_other_than_single_file_decoders(config):
    assert configured_caches(config) is None


@pytest.mark.parametrize(
    "layers", [[DENSE, DENSE], [{"conv"}, DENSE], [DENSE, STATES, STATES], [DENSE | STATES], [DENSE | STATES] * 2]
)
def test_a_type_with_these_caches_is_found(layers):
    found = like([frozenset(roles) for roles in layers])
    assert [*configured_caches(found).layers.values()] == layers


@pytest.mark.parametrize("layers", [[STATES], [{"recurrent"}, DENSE], [{"conv"}, STATES, DENSE], [{"a"}], []])
def test_other_caches_have_no_type(layers):
    assert like([frozenset(roles) for roles in layers]) is None
