"""Unpack fixtures once, share work between tests of one fixture, and keep time out of the results."""

import gc
import os

import pytest
from hypothesis import HealthCheck, settings
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
def _nobody_edits_what_all_share():
    yield
    from support.loaded import edited_all_the_same

    assert not edited_all_the_same()
