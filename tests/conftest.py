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
    _take_a_core_of_its_own(os.environ.get("PYTEST_XDIST_WORKER", ""))
    fixtures()


def _take_a_core_of_its_own(worker):
    """Pin each process of tests: threads of runtimes would spin while they wait for those of the other."""
    if worker and hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[int(worker.removeprefix("gw")) % len(cores)]})


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
