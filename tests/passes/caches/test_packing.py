"""Names of packed tensors, joined and split."""

import pytest

from graphpass.passes.caches.packing import joined_name, split_name


@pytest.mark.parametrize(
    ("names", "joined"),
    [
        (["cache_params.past.conv.0", "cache_params.past.ssm.0"], "cache_params.past.conv+ssm.0"),
        (["past.3.conv", "past.3.recurrent"], "past.3.conv+recurrent"),
        (["past_conv_0", "past_ssm_0"], "past_conv_0+past_ssm_0"),
        (["a.x.0", "a.y.0", "a.z.0"], "a.x+y+z.0"),
    ],
)
def test_joined_names_are_split_again(names, joined):
    assert joined_name(names) == joined
    assert split_name(joined, len(names)) == names


@pytest.mark.parametrize("name", ["past", "past.a+b", "past.a+a+a"])
def test_other_names_are_numbered(name):
    assert split_name(name, 3) == [f"{name}.0", f"{name}.1", f"{name}.2"]
