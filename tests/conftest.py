"""Unpacks the fixture models once, before any worker needs them."""

from support.models import fixtures


def pytest_configure(config):
    fixtures()
