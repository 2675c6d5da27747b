import pytest


@pytest.fixture(autouse=True)
def memory(tmp_path_factory, monkeypatch):
    """Where digests are remembered while a test runs."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    return folder / "graphpass" / "digests"
