"""Unpack fixtures once, share work between tests of one fixture, and keep time out of the results."""

import gc
import os
import zlib
from collections import defaultdict

import pytest
from hypothesis import HealthCheck, settings
from support.models import fixture_of, fixtures

# How fast a machine is, and how busy, is not a property of what is tested; and CI tells of a change, not of luck.
settings.register_profile(
    "untimed", deadline=None, derandomize="CI" in os.environ, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("untimed")


def pytest_configure(config):
    fixtures()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Let the quick run take a part of the fixtures that a test goes through; the slow run has the others.

    It takes every second of two or three and every third of more, or every n-th case of a test marked `sampled(n)`. The
    first one differs from test to test, so that each fixture meets its share of all tests.
    """
    cases = defaultdict(list)
    for item in items:
        is_sampled = fixture_of(item.nodeid) is not None or item.get_closest_marker("sampled") is not None
        if is_sampled and item.get_closest_marker("slow") is None:
            cases[item.nodeid.partition("[")[0]].append(item)
    for name, those in cases.items():
        given = those[0].get_closest_marker("sampled")
        parts = given.args[0] if given is not None else 1 if len(those) == 1 else 2 if len(those) < 4 else 3
        for place, item in enumerate(those, zlib.crc32(name.encode())):
            if place % parts:
                item.add_marker(pytest.mark.slow)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    from xdist.scheduler import LoadScopeScheduling

    class ByFixture(LoadScopeScheduling):
        """Give all tests of one fixture to one worker, and those that name no fixture by file."""

        def _split_scope(self, nodeid):
            return fixture_of(nodeid) or nodeid.partition("::")[0]

    return ByFixture(config, log)


def pytest_collection_finish(session):
    """Spare the collector what lives until the end: it took 8 % of the CPU time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


@pytest.fixture(scope="session", autouse=True)
def _nobody_edits_what_all_share():
    yield
    from support.loaded import edited_shared_models

    assert not edited_shared_models()


@pytest.fixture
def cache_folder(tmp_path_factory, monkeypatch):
    """The folder where programs keep caches while a test runs."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    return folder


@pytest.fixture
def digest_memory(cache_folder):
    """The folder where digests are remembered while a test runs."""
    return cache_folder / "graphpass" / "digests"


@pytest.fixture
def memory():
    """The memory of fsspec, empty."""
    import fsspec

    system = fsspec.filesystem("memory")
    system.store.clear()
    system.pseudo_dirs[:] = [""]
    yield system
    system.store.clear()
