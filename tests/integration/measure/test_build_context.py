"""What a plugin is told in its worker about the build, and what its kernel tells back."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

from collage.devices.this_host import this_host
from collage.measure.driver.client import PluginSource, Worker
from collage.measure.wire.blobs import BlobStore
from collage.measure.wire.messages import AskBuild, AskMeasure
from collage.measure.wire.outcomes import BuildSettings, Built, Failed, Measured, Refused
from collage_core.contract import Target
from tests.integration.measure.conftest import add_ask
from tests.integration.measure.context_plugin import WORKSPACE_BYTES

TARGET = Target(toolchain="context", fingerprint="context 1")
SOURCE = PluginSource(toolchain="context", plugin="context_plugin:plugin", paths=(str(Path(__file__).parent),))


@pytest.fixture
def talker(store: BlobStore) -> Iterator[Worker]:
    worker = Worker(SOURCE, store)
    yield worker
    worker.close()


@pytest.fixture
def ask(store: BlobStore) -> AskMeasure:
    return add_ask(store, TARGET, variants=3)


def test_lowering_knows_how_many_variants_are_wanted_how_long_and_for_which_machine(
    talker: Worker, ask: AskMeasure
) -> None:
    outcome = talker.measure(ask)

    assert isinstance(outcome, Measured)
    assert outcome.discarded == ()
    _, told = outcome.variant.split(" ", 1)
    assert told == f"of 3, True, {this_host().physical_cores}"


def test_a_variant_chosen_before_is_asked_for_by_name(talker: Worker, ask: AskMeasure) -> None:
    outcome = talker.measure(dataclasses.replace(ask, variant="tuned yesterday"))

    assert isinstance(outcome, Measured)
    assert outcome.variant == "tuned yesterday"


@pytest.mark.guards(
    "a target of a device whose memory core does not manage",
    "its candidates are refused; it is given no addresses of the CPU",
    area="toolchains",
)
def test_kernels_of_another_device_are_not_given_places_of_the_cpu(talker: Worker, ask: AskMeasure) -> None:
    elsewhere = dataclasses.replace(TARGET, device="made-up:0")

    outcome = talker.measure(dataclasses.replace(ask, target=elsewhere))

    assert isinstance(outcome, Failed)
    assert "device made-up:0: nothing installed provides devices of kind made-up" in outcome.reason


@pytest.mark.guards(
    "a kernel asks, once loaded, for more scratch memory than is allowed",
    "the variant is refused, naming both numbers",
    area="toolchains",
)
def test_scratch_memory_asked_for_at_load_counts_against_the_limit(talker: Worker, ask: AskMeasure) -> None:
    enough, little = (
        talker.build(
            AskBuild(
                target=ask.target,
                function=ask.function,
                variant="any",
                inputs=ask.inputs,
                expected=ask.expected,
                build=BuildSettings(threads=1, workspace_limit_bytes=limit),
                tolerance=ask.tolerance,
                deadline_s=ask.deadline_s,
            )
        )
        for limit in (WORKSPACE_BYTES, WORKSPACE_BYTES - 1)
    )

    assert isinstance(enough, Built)
    assert little == Refused(reason="it needs 4096 bytes of workspace, 4095 are allowed")
