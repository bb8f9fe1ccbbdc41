"""Machines: which are taken, and what code for them asks for."""

from __future__ import annotations

import pytest

from collage_core.contract import Host, Supported, Unsupported
from collage_halide import machine

HASWELL = ("avx", "sse4_2", "popcnt", "avx2", "bmi1", "bmi2", "abm", "movbe", "f16c", "fma")


def host(system: str = "Linux x86_64", *flags: str) -> Host:
    return Host(system=system, cpu="test", physical_cores=2, cpu_flags=frozenset(flags), memory_bytes=1 << 30)


def test_other_systems_are_refused_with_the_reason() -> None:
    answer = machine.check_host(host("Darwin arm64"))
    assert isinstance(answer, Unsupported)
    assert "Darwin arm64" in answer.reason
    assert isinstance(machine.check_host(host("Linux aarch64")), Supported)


def test_vectors_are_as_wide_as_the_flags_say() -> None:
    avx512 = ("avx512f", "avx512cd", "avx512vl", "avx512dq", "avx512bw")
    assert machine.vector_bytes(host("Linux x86_64", "sse4_1")) == 16
    assert machine.vector_bytes(host("Linux x86_64", "sse4_1", *HASWELL)) == 32
    assert machine.vector_bytes(host("Linux x86_64", *HASWELL, *avx512)) == 64
    assert machine.vector_bytes(host("Linux x86_64", *HASWELL, "avx512f")) == 32


@pytest.mark.parametrize("masked", ["bmi2", "movbe", "abm", "popcnt"])
def test_what_a_virtual_machine_masks_is_not_used(masked: str) -> None:
    """LLVM uses all that Haswell had for code with AVX2."""
    flags = [flag for flag in HASWELL if flag != masked]

    assert machine.vector_bytes(host("Linux x86_64", *flags)) == 16
    assert "avx2" not in machine.flags_of(host("Linux x86_64", *flags))
    assert set(HASWELL) <= set(machine.flags_of(host("Linux x86_64", *HASWELL)))


def test_code_asks_for_the_flags_it_was_compiled_for_and_no_others() -> None:
    flags = ("sse4_1", "sse4_2", "popcnt", "avx", "fma")
    found = {each.name for each in machine.requirements(host("Linux x86_64", *flags, "amx_tile"))}
    assert found == set(flags)


def test_a_missing_linker_is_said_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "version", lambda: "21.0.0")
    monkeypatch.setattr(machine, "linker", lambda: None)
    missing = machine.problem()
    assert missing is not None
    assert "ziglang" in missing.reason


def test_an_old_halide_is_said_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "version", lambda: "19.0.0")
    missing = machine.problem()
    assert missing is not None
    assert "halide>=21.0" in missing.reason


@pytest.mark.parametrize(("version", "is_too_old"), [("20.1.0", True), ("21.0.0", False), ("22.0rc1", False)])
def test_versions_are_compared_by_their_numbers(
    version: str, is_too_old: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "version", lambda: version)
    monkeypatch.setattr(machine, "linker", lambda: ("ld",))
    assert (machine.problem() is not None) == is_too_old
