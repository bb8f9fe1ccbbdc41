"""Races as tuning databases recorded them: quartiles of each round, in one file."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import lzma
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from collage.decide.races.race import FIRST_ROUNDS, HEAT_ROUNDS
from collage.measure.contenders.interleaved import Rounds


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """A race as it was recorded, of the contenders that ran to its end.

    Attributes:
        rounds: Samples by contender, by round, in microseconds.
        called: The same of runs as users call them.
        singles: Names of the single toolchains.
    """

    rounds: Mapping[str, Rounds]
    called: Mapping[str, Rounds]
    singles: frozenset[str]


def collected(databases: Iterable[Path]) -> list[dict[str, Any]]:
    """Return the races of databases, as JSON, without those of one heat and those that one kind of plans left."""
    found: dict[str, dict[str, Any]] = {}
    for path in databases:
        for name, race in races_in(path):
            most = max((len(rounds) for rounds in race["timed"].values()), default=0)
            stayed = sorted(key for key, rounds in race["timed"].items() if len(rounds) == most)
            called = race.get("called", {})
            # of plans of several kernels, steps are timed
            singles = [key for key in stayed if not race.get("parts_us", {}).get(key)]
            if most < FIRST_ROUNDS + HEAT_ROUNDS or not singles or len(singles) == len(stayed):
                continue
            found[name] = {
                "rounds": [_quartiles(race["timed"][key]) for key in stayed],
                "called": [_quartiles(called[key]) for key in stayed if key in called],
                "singles": [key in singles for key in stayed],
            }
    return [race for race in found.values() if len(race["called"]) == len(race["rounds"])]


def races_in(database: Path) -> list[tuple[str, dict[str, Any]]]:
    """Return the races that a database holds, as it keeps them, by name."""
    with contextlib.closing(sqlite3.connect(f"{database.resolve().as_uri()}?mode=ro", uri=True)) as connection:
        rows = connection.execute("SELECT name, body FROM document WHERE kind = 'race' ORDER BY name").fetchall()
    return [(name, json.loads(body)) for name, body in rows]


def read(path: Path) -> list[Recorded]:
    """Return the races of a file."""
    races = json.loads(lzma.decompress(path.read_bytes()))
    return [
        Recorded(
            rounds={str(number): _rounds(each) for number, each in enumerate(race["rounds"])},
            called={str(number): _rounds(each) for number, each in enumerate(race["called"])},
            singles=frozenset(str(number) for number, single in enumerate(race["singles"]) if single),
        )
        for race in races
    ]


def two_of(quartiles: Sequence[float]) -> tuple[float, float]:
    """Return the two samples of which these are the quartiles, by linear interpolation.

    Examples:
        >>> two_of((11.0, 12.0, 13.0))
        (10.0, 14.0)
    """
    low, high = quartiles[0], quartiles[-1]
    beyond = (high - low) / 2
    return low - beyond, high + beyond


def _quartiles(rounds: Sequence[Sequence[float]]) -> list[list[float]]:
    return [[float(f"{value:.4g}") for value in np.quantile(samples, (0.25, 0.5, 0.75))] for samples in rounds]


def _rounds(rounds: Sequence[Sequence[float]]) -> Rounds:
    return tuple(tuple(samples) for samples in rounds)
