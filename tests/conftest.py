"""Unpacks the fixture models once, before any worker needs them."""

import os

from hypothesis import HealthCheck, settings
from support.models import fixtures

# How fast a machine is, and how busy, is no property of what is tested; and CI tells of a change, not of luck.
settings.register_profile(
    "untimed", deadline=None, derandomize="CI" in os.environ, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("untimed")


def pytest_configure(config):
    fixtures()
