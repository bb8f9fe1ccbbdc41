"""Caches as Linux lists them, in a folder made by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from collage.peaks.caches import Cache, caches


def system(folder: Path, cores: int, per_core: int = 1) -> Path:
    """Processors with caches of their core, and a third level for pairs of cores; hyper-threads are neighbours."""
    for cpu in range(cores * per_core):
        core = cpu // per_core
        siblings = f"{core * per_core}-{core * per_core + per_core - 1}" if per_core > 1 else str(core)
        pair = f"{core // 2 * 2 * per_core}-{(core // 2 * 2 + 2) * per_core - 1}"
        listed = (
            ("1", "Data", "48K", siblings),
            ("1", "Instruction", "32K", siblings),
            ("2", "Unified", "2048K", siblings),
            ("3", "Unified", "30M", pair),
        )
        for number, values in enumerate(listed):
            index = folder / f"cpu{cpu}" / "cache" / f"index{number}"
            index.mkdir(parents=True)
            for name, value in zip(("level", "type", "size", "shared_cpu_list"), values, strict=True):
                (index / name).write_text(f"{value}\n")
    return folder


@pytest.mark.parametrize(
    ("threads", "counts"), [(1, (1, 1, 1)), (2, (2, 2, 2)), (4, (4, 4, 2))], ids=["one", "two", "four"]
)
def test_threads_use_as_many_caches_as_there_are_for_them(
    tmp_path: Path, threads: int, counts: tuple[int, ...]
) -> None:
    found = caches(threads, cpus=range(4), system=system(tmp_path, 4))

    sizes = (48 << 10, 2 << 20, 30 << 20)
    assert found == tuple(
        Cache(level=level, size_bytes=size, count=count)
        for level, (size, count) in enumerate(zip(sizes, counts, strict=True), start=1)
    )
    assert found[0].holds_bytes == counts[0] * 48 << 10


def test_hyper_threads_share_the_caches_of_their_core(tmp_path: Path) -> None:
    first, *_ = caches(8, cpus=range(8), system=system(tmp_path, 4, per_core=2))

    assert first.count == 4


def test_processors_that_may_not_be_used_do_not_count(tmp_path: Path) -> None:
    *_, last = caches(4, cpus=[0, 1], system=system(tmp_path, 4))

    assert last.count == 1


@pytest.mark.parametrize("damage", ["", "K", "x12K", "12"])
def test_typical_caches_stand_in_where_nothing_is_understood(tmp_path: Path, damage: str) -> None:
    for size in system(tmp_path, 1).glob("cpu0/cache/index*/size"):
        size.write_text(damage)

    found = caches(2, cpus=[0], system=tmp_path)

    assert [(each.level, each.count) for each in found] == [(1, 2), (2, 2), (3, 1)]


def test_this_machine_has_caches() -> None:
    found = caches(1)

    assert [each.level for each in found] == sorted(each.level for each in found)
    assert all(each.size_bytes > 0 and each.count == 1 for each in found)
