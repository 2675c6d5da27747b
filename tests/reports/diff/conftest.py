import pytest


@pytest.fixture(autouse=True)
def _digests_in_a_folder_of_the_test(cache_folder):
    """Keep digests of other runs from being read."""
