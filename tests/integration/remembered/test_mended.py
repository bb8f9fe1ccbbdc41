"""What is remembered belongs to the version of the plugin that it was found out with."""

from __future__ import annotations

import dataclasses

import pytest

from collage.commands.stores.forget import known_of
from collage.store import open_database
from tests.integration.remembered.conftest import Installation, Run, installation
from tests.integration.remembered.mending_plugin import FAULTS, QUERY_FAULT, SLOW

pytestmark = pytest.mark.slow  # five searches, with libraries that fail


@dataclasses.dataclass(frozen=True)
class Story:
    """Runs over one database.

    Attributes:
        first: With the version that fails.
        again: The same again.
        retried: The same, told to retry what failed.
        mended: With the next version.
        afterwards: The same again.
    """

    first: Run
    again: Run
    retried: Run
    mended: Run
    afterwards: Run


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory, installing: pytest.MonkeyPatch) -> Installation:
    return installation(tmp_path_factory.mktemp("mended"), installing)


@pytest.fixture(scope="module")
def story(installed: Installation) -> Story:
    installed.install("1.0", mended=False)
    first, again = installed.optimized(), installed.optimized()
    retried = installed.optimized(retry_failed=True)
    installed.install("1.1", mended=True)
    return Story(first, again, retried, installed.optimized(), installed.optimized())


@pytest.mark.guards(
    "a kernel, profile or query that fails is mended in the plugin's next version",
    "it is tried again: what another version of the plugin failed at does not count",
    area="toolchains",
)
@pytest.mark.parametrize("way", FAULTS)
def test_a_mended_kernel_is_measured_again(way: str, story: Story) -> None:
    [failed] = story.first.of(way)
    assert (failed.outcome, failed.key.plugin) == ("failed", "collage-mending 1.0")

    [right] = [record for record in story.mended.of(way) if record.purpose == "select"]

    assert (right.outcome, right.key.plugin) == ("measured", "collage-mending 1.1")


@pytest.mark.parametrize("way", FAULTS)
def test_what_failed_is_not_tried_again_by_the_same_version(way: str, story: Story) -> None:
    assert f"lowering {way}" not in story.again.noted
    assert f"lowering {way}" not in story.afterwards.noted


@pytest.mark.parametrize("way", FAULTS)
def test_what_failed_is_tried_again_on_request(way: str, story: Story) -> None:
    [failed] = story.retried.of(way)

    assert failed.outcome == "failed"
    assert story.retried.noted.count(f"lowering {way}") == (2 if way == "crashes" else 1)


@pytest.mark.guards("a kernel, profile or query that fails is mended in the plugin's next version")
def test_a_query_that_crashed_is_asked_again(story: Story) -> None:
    asked = f"query {QUERY_FAULT}"

    assert [run.noted.count(asked) for run in (story.first, story.again, story.retried, story.mended)] == [2, 0, 2, 1]
    assert story.mended.of(QUERY_FAULT)
    assert asked not in story.afterwards.noted


def test_a_success_of_another_version_counts(story: Story) -> None:
    assert {record.outcome for record in story.first.of(SLOW)} == {"measured"}

    assert story.mended.of(SLOW) == []
    assert f"lowering {SLOW}" not in story.mended.noted + story.retried.noted


def test_a_success_of_another_version_is_measured_once_more_on_the_chosen_plan(story: Story) -> None:
    assert {region.target for region in story.mended.optimized.record.regions} == {"mending"}

    fresh = {record.key.structural_hash: record for record in story.mended.of("")}

    assert len(fresh) == len(story.mended.of("")) == len(story.mended.optimized.record.regions)
    assert {(record.purpose, record.outcome, record.key.plugin) for record in fresh.values()} == {
        ("confirm", "measured", "collage-mending 1.1")
    }


def test_the_same_version_measures_nothing_again(story: Story) -> None:
    assert (story.again.new, story.afterwards.new) == ((), ())
    assert story.afterwards.optimized.record.search.measured == 0


def test_a_run_that_retried_leaves_nothing_to_measure(story: Story) -> None:
    assert all(record.outcome == "failed" for record in story.retried.new)


def test_the_record_says_which_failures_are_remembered(story: Story) -> None:
    for way in FAULTS:
        said = {
            name: [each for each in run.optimized.record.refusals if each.target == f"mending(way={way})"]
            for name, run in (("first", story.first), ("again", story.again))
        }
        [failed] = story.first.of(way)

        assert {each.remembered for each in said["first"] if each.stage != "predicate"} == {None}
        [remembered] = {each.remembered for each in said["again"] if each.stage != "predicate"}
        assert remembered is not None
        assert (remembered.since, remembered.plugin) == (failed.created, "collage-mending 1.0")


def test_a_model_that_was_forgotten_is_measured_from_the_start(installed: Installation, story: Story) -> None:
    assert story.afterwards.optimized.record.search.cache_hits > 0
    with open_database(installed.database) as store:
        store.remove(known_of(store, str(installed.model)))
        assert store.stats().records == 0

    run = installed.optimized()

    assert run.optimized.record.search.cache_hits == 0
    assert {record.key.target for record in run.new} >= {record.key.target for record in story.mended.new}
    assert f"lowering {SLOW}" in run.noted
    assert f"query {QUERY_FAULT}" in run.noted
