from dataclasses import replace

import pytest

from scapegoat.data import registry
from scapegoat.data.files.published import PublishedData


@pytest.fixture(autouse=True)
def own_folders(tmp_path_factory, monkeypatch):
    """No test sees the data roots or the cache of whoever runs it."""
    monkeypatch.delenv("SCAPEGOAT_DATA", raising=False)
    monkeypatch.setenv("SCAPEGOAT_CACHE", str(tmp_path_factory.mktemp("cache")))
    monkeypatch.chdir(tmp_path_factory.mktemp("here"))


@pytest.fixture
def any_count(monkeypatch):
    """A few records in a published format are read as if they were all of them."""
    monkeypatch.setattr(PublishedData, "check_counts", lambda *_: None)


@pytest.fixture
def publish(monkeypatch):
    """Have a data set published with as few records as a test makes, and without checksums."""

    def with_counts(name, records, test=0):
        cls = registry.cls(name)
        publication = replace(cls.publication, records=records, test=test, checksums={}, content=None)
        monkeypatch.setattr(cls, "publication", publication)

    return with_counts
