"""What does the same in several ways is done in the way that turned out to be fastest, size by size."""

from __future__ import annotations

from scapegoat.kernels.trying import TRIES, Tried


def test_every_call_is_done_once_and_soon_by_the_fastest() -> None:
    now, calls = 0.0, []

    def taking(name: str, seconds: dict[str, float]):
        def work(size: str, item: int) -> None:
            nonlocal now
            now += seconds[size]
            calls.append((name, size, item))

        return work

    work = Tried(taking("one", {"small": 1, "large": 9}), taking("other", {"small": 2, "large": 3}), clock=lambda: now)
    for item in range(4 * TRIES):
        work("small", "small", item)
        work("large", "large", item)
    for size, best in (("small", "one"), ("large", "other")):
        done = [(name, item) for name, s, item in calls if s == size]
        assert [item for _, item in done] == list(range(4 * TRIES))
        assert {name for name, _ in done[2 * TRIES :]} == {best}
        assert {name for name, _ in done[: 2 * TRIES]} == {"one", "other"}
