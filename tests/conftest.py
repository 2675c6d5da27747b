"""Unpack fixtures once, share work between tests of one fixture, and keep time out of the results."""

import gc
import os

import pytest
from hypothesis import HealthCheck, settings
from support.decode import EXACT
from support.models import fixtures

# How fast a machine is, and how busy, is no property of what is tested; and CI tells of a change, not of luck.
settings.register_profile(
    "untimed", deadline=None, derandomize="CI" in os.environ, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("untimed")


def pytest_configure(config):
    fixtures()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    from support.scheduling import ByFixture

    return ByFixture(config, log)


def pytest_collection_finish(session):
    """Spare the collector what lives until the end: it took 8 % of the CPU time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


@pytest.fixture(scope="session", autouse=True)
def _compile_each_model_once(tmp_path_factory):
    """Let OpenVINO keep what it compiled: importing it takes a quarter of the time and gives the same kernels.

    Checks of a target and tests of what is fused by default compile anew.
    """
    from graphpass.runtime.backends.openvino_request import _core

    EXACT["CACHE_DIR"] = str(tmp_path_factory.mktemp("compiled"))
    _core().set_property({"CACHE_DIR": EXACT["CACHE_DIR"]})
