"""Generation on the CPU, with which results of other runtimes are compared."""

from dataclasses import replace

import numpy
import pytest

from graphpass.runtime import open_session
from graphpass.targets.ort.generated import (
    STEPS,
    batches_for,
    generate,
    generated_difference,
    largest_difference,
    on_cpu,
)
from graphpass.testing import FAMILIES, run, tiny_model


@pytest.fixture(scope="module")
def llama():
    return tiny_model("llama", layers=1)


@pytest.fixture(scope="module")
def generated(llama):
    return on_cpu(llama, batches_for(llama))


def test_hybrids_are_tried_without_padding(llama):
    assert [len(rows) for rows in batches_for(llama)] == [1, 2]
    assert [len(rows) for rows in batches_for(tiny_model(replace(FAMILIES["llama"], convolution=True)))] == [1]


def test_rows_of_a_batch_generate_what_they_do_alone(llama, generated):
    _, batch = generated
    session = open_session(llama)
    for place, row in enumerate(batches_for(llama)[1]):
        alone = generate(session, [row])
        assert len(alone.tokens[0]) == STEPS
        assert batch.tokens[place] == alone.tokens[0]
        numpy.testing.assert_allclose(batch.logits[place], alone.logits[0], atol=1e-5)


def test_logits_may_differ_by_a_share_of_the_largest(llama, generated):
    largest = max(1.0, float(numpy.abs(generated[0].logits).max()))

    def moved(by):
        return [replace(generated[0], logits=generated[0].logits + numpy.float32(by * largest)), generated[1]]

    assert generated_difference(generated, moved(4e-3), llama) is None
    assert generated_difference(generated, moved(6e-3), llama) == f"logits differ by {6e-3 * largest:.2g}"
    assert largest_difference(generated, moved(6e-3)) == pytest.approx(6e-3 * largest, rel=1e-3)
    # NaN is above every tolerance.
    assert generated_difference(generated, moved(numpy.nan), llama) == "logits differ by nan"


def test_tokens_may_differ_in_f16_only(llama, generated):
    other = [replace(generated[0], tokens=[[1, 2, 3]]), generated[1]]
    assert generated_difference(generated, other, llama).startswith("tokens are [[1, 2, 3]], not ")
    assert generated_difference(generated, other, run(llama, "change-precision{to=f16}")) is None
