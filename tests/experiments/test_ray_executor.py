"""The Ray executor on a real local cluster of several processes."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from scapegoat.errors import InputError
from scapegoat.experiments import RunStore
from scapegoat.experiments.executors import Event, cluster, execute
from scapegoat.experiments.ray_cluster import connected, import_ray
from tests.experiments.tiny import assert_same_numbers, spec

pytestmark = pytest.mark.ray


def test_an_address_where_no_cluster_is(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    with pytest.raises(InputError, match="no cluster answers there"):
        execute([spec()], tmp_path, ray="nonsense:1:2")


@pytest.fixture(scope="module")
def ray_cluster() -> Iterator[None]:
    pytest.importorskip("ray")
    ray = import_ray()
    with connected(ray, "local", 2):
        yield


def test_a_killed_worker_is_replaced_and_a_store_out_of_sight_is_served(
    ray_cluster: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = [spec(rounds=60, seed=s) for s in range(2)] + [spec(targets=4000)]
    calm, stormy, apart = (RunStore(tmp_path / name) for name in ("calm", "stormy", "apart"))
    hopeless = next(iter(execute(wanted, calm).failures))
    calm.remove(hopeless)
    killed: list[int] = []
    retried: list[Event] = []

    def kill_once(event: Event) -> None:
        if event.kind == "retried":
            retried.append(event)
        progress = stormy.part(event.name) / "progress.json"
        if event.kind == "round" and not killed and progress.is_file():
            killed.append(json.loads(progress.read_text())["pid"])
            os.kill(killed[0], signal.SIGKILL)

    outcome = execute(wanted, stormy, ray="local", on_event=kill_once, checkpoint_seconds=0.0)
    assert killed
    assert [e.reason for e in retried] == ["WorkerCrashedError on the Ray cluster"]
    assert list(outcome.failures) == [hopeless]
    assert "records" in outcome.failures[hopeless].reason
    stormy.remove(hopeless)
    assert_same_numbers(calm, stormy)

    # Without the sign in the store, workers take it that they do not see the driver's disk and send the run back.
    monkeypatch.setattr(cluster, "_leave", lambda path: None)
    assert len(execute(wanted, apart, ray="local").summaries) == 2
    apart.remove(hopeless)
    assert_same_numbers(calm, apart)


def test_without_ray_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match=r"pip install 'scapegoat-fl\[ray\]'"):
        execute([spec()], tmp_path, ray="auto")
