"""The shape of the house: who imports how much, how full a room is, and that a name means one thing."""

from __future__ import annotations

import ast
import functools
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
DISTRIBUTIONS = {
    "collage_core": ROOT / "collage_core",
    "collage": ROOT / "engine" / "collage",
    "collage_testing": ROOT / "testing" / "collage_testing",
}
MOST_IMPORTS = 15
MOST_MODULES = 15
MAY_IMPORT_MORE = "collage.commands."
"""A command is the sequence of all steps, so it names them all."""


@functools.cache
def sources() -> dict[str, Path]:
    """File of each module; packages included."""
    found = {}
    for name, folder in DISTRIBUTIONS.items():
        for path in sorted(folder.rglob("*.py")):
            if "template" in path.parts:
                continue  # plugins of their own
            parts = [name, *path.relative_to(folder).with_suffix("").parts]
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@functools.cache
def tree(module: str) -> ast.Module:
    return ast.parse(sources()[module].read_text())


def is_package(module: str) -> bool:
    return sources()[module].name == "__init__.py"


def imported_from(module: str) -> Iterator[tuple[str, str]]:
    """Module and name of each `from ... import` of ours."""
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] in DISTRIBUTIONS:
            yield from ((node.module, alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names if alias.name in sources())


def defining(module: str, name: str) -> str:
    """The module that defines a name which another exports."""
    if module in sources() and is_package(module):
        behind = [(origin, given) for origin, given in imported_from(module) if given == name]
        for origin, given in behind:
            return defining(origin, given)
    full = f"{module}.{name}"
    return full if full in sources() else module


def exported(module: str) -> tuple[str, ...]:
    """What a façade exports; nothing if it is none."""
    for node in tree(module).body:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "__all__" for t in node.targets):
            return tuple(ast.literal_eval(node.value)) if is_package(module) else ()
    return ()


def test_no_module_but_a_command_imports_more_than_fifteen_of_ours() -> None:
    many = {}
    for module in sources():
        if not is_package(module) and not module.startswith(MAY_IMPORT_MORE):
            count = len({defining(*each) for each in imported_from(module)})
            if count > MOST_IMPORTS:
                many[module] = count

    assert many == {}


def test_no_room_of_the_engine_holds_more_than_fifteen_modules() -> None:
    rooms = Counter(m.rpartition(".")[0] for m in sources() if m.startswith("collage.") and not is_package(m))

    assert {room: count for room, count in rooms.items() if count > MOST_MODULES} == {}


def test_no_two_modules_of_one_room_have_the_same_basename() -> None:
    names: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for module in sources():
        parts = module.split(".")
        if not is_package(module):
            names[(*parts[: min(2, len(parts) - 1)], parts[-1])].append(module)

    assert [modules for modules in names.values() if len(modules) > 1] == []


def test_facades_of_one_distribution_share_no_name_and_hide_no_module() -> None:
    owners: dict[tuple[str, str], list[str]] = defaultdict(list)
    hiding = []
    for module in sources():
        for name in exported(module):
            owners[module.partition(".")[0], name].append(module)
            if f"{module}.{name}" in sources():
                hiding.append(f"{module}.{name}")

    assert {name: modules for (_, name), modules in owners.items() if len(modules) > 1} == {}
    assert hiding == []


def called_in(what: str) -> list[str]:
    """Modules of the engine that call something, written as it is called."""
    found = set()
    for module in sources():
        if module.startswith("collage."):
            calls = (node for node in ast.walk(tree(module)) if isinstance(node, ast.Call))
            if any(ast.unparse(call.func) == what for call in calls):
                found.add(module)
    return sorted(found)


def test_selection_candidate_pool_and_cost_source_are_each_made_in_one_place() -> None:
    assert called_in("Selection.parse") == ["collage.setup.settings"]
    assert called_in("CandidatePool") == ["collage.setup.empty_pool"]
    assert called_in("MeasuringCostSource") == ["collage.setup.environment"]
