import pytest


@pytest.fixture(autouse=True)
def own_folders(tmp_path_factory, monkeypatch):
    """No test sees the data roots or the cache of whoever runs it."""
    monkeypatch.delenv("SCAPEGOAT_DATA", raising=False)
    monkeypatch.setenv("SCAPEGOAT_CACHE", str(tmp_path_factory.mktemp("cache")))
    monkeypatch.chdir(tmp_path_factory.mktemp("here"))
