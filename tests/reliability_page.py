"""Write `docs/generated/reliability.md` from the markers of the tests.

    python -m tests.reliability_page            prints the page
    python -m tests.reliability_page --write    puts it into docs/generated/

A test says what it guards against: `@pytest.mark.guards("the case", "what happens", area="devices")`. Further tests of
the same case name the case alone. `cases=` names the parameters that show it, where not all do, as globs.

The markers are read from the source, not by running pytest: the page is the same wherever it is made, whatever is
installed.
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeGuard

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "generated" / "reliability.md"

AREAS = {
    "toolchains": "Toolchains",
    "devices": "Devices",
    "kills and databases": "Kills and databases",
    "packages and files": "Packages and other files",
    "input": "Input",
    "sessions": "Sessions",
}
"""Title of each area's table, in the order of the page."""

UNGUARDED: dict[str, tuple[tuple[str, str], ...]] = {
    "toolchains": (
        (
            "native code in the driver (module import, `register_*`, predicates) hangs outside the main thread, or "
            "crashes a program that is not the `collage` command",
            "not contained: by contract the driver's part of a plugin is pure Python "
            "([What a failure costs](../plugin-authors/writing-a-plugin.md#what-a-failure-costs))",
        ),
    ),
}
"""Cases that nothing contains, with what is said of them, by area."""

HEAD = """# What is tested to go wrong

Each row is a failure, what Collage does about it, and the tests that show it. `[...]` names the parameters of a test
that show the case, where not all do. The rules behind the rows are in [failures and files](../user/failures.md) for
users and in [the worker's contract](../plugin-authors/workers.md) for plugin authors.

Made by `python -m tests.reliability_page --write` from the markers `guards` of the tests; a test compares.
"""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """One marker of one test.

    Attributes:
        file: Path below the repository's root.
        test: Function that bears the marker; empty if the whole file does.
        case: The failure.
        outcome: What Collage does about it; empty if another marker of the same case says so.
        area: Key of `AREAS`; empty together with `outcome`.
        cases: Globs of the parameters that show the case; all if empty.
        slow: Whether the default run leaves the test out.
    """

    file: str
    test: str
    case: str
    outcome: str = ""
    area: str = ""
    cases: tuple[str, ...] = ()
    slow: bool = False

    @property
    def citation(self) -> str:
        """The test as the page names it."""
        name = f"{self.file}::{self.test}" if self.test else self.file
        shown = ", ".join(f"[{case}]" for case in self.cases)
        return f"`{name}`" + (f": `{shown}`" if shown else "") + (" (slow)" if self.slow else "")


def guards_of(source: str, file: str) -> Iterator[Guard]:
    """Yield the markers of one test file, in the order of the file.

    Args:
        source: Text of the file.
        file: Its path, as the page names it.
    """
    body = ast.parse(source).body
    marks = [mark for node in body if _is_pytestmark(node) for mark in ast.walk(node)]
    slow = any(isinstance(mark, ast.Attribute) and ast.unparse(mark) == "pytest.mark.slow" for mark in marks)
    for guard in _guards_in(body, file, ""):
        yield dataclasses.replace(guard, slow=guard.slow or slow)


def _is_pytestmark(node: ast.stmt) -> TypeGuard[ast.Assign]:
    return isinstance(node, ast.Assign) and any(ast.unparse(each) == "pytestmark" for each in node.targets)


def _guards_in(body: Iterable[ast.stmt], file: str, prefix: str) -> Iterator[Guard]:
    for node in body:
        if _is_pytestmark(node):
            yield from _guards((node.value,), file, "")
        elif isinstance(node, ast.FunctionDef):
            yield from _guards(node.decorator_list, file, prefix + node.name)
        elif isinstance(node, ast.ClassDef):
            yield from _guards_in(node.body, file, f"{prefix}{node.name}::")


def _guards(marks: Iterable[ast.expr], file: str, test: str) -> Iterator[Guard]:
    marks = [each for mark in marks for each in (mark.elts if isinstance(mark, ast.List) else [mark])]
    slow = any(ast.unparse(mark) == "pytest.mark.slow" for mark in marks)
    for mark in marks:
        if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.guards":
            texts = [ast.literal_eval(argument) for argument in mark.args]
            named = {each.arg: ast.literal_eval(each.value) for each in mark.keywords if each.arg}
            case, outcome = (*texts, "")[:2]
            yield Guard(file=file, test=test, case=case, outcome=outcome, slow=slow, **named)


def all_guards(root: Path = ROOT) -> list[Guard]:
    """Return the markers of all tests of the repository, by file."""
    files = [*root.glob("tests/**/test_*.py"), *root.glob("plugins/*/tests/**/test_*.py")]
    return [
        guard
        for file in sorted(files)
        for guard in guards_of(file.read_text(encoding="utf-8"), file.relative_to(root).as_posix())
    ]


def problems(guards: Iterable[Guard]) -> list[str]:
    """Return what is wrong with markers: cases without an outcome, with two, or of an unknown area."""
    found = []
    outcomes: dict[str, list[Guard]] = {}
    for guard in guards:
        outcomes.setdefault(guard.case, [])
        if guard.outcome:
            outcomes[guard.case].append(guard)
    for case, said in outcomes.items():
        if len(said) != 1:
            found.append(f"{case}: {len(said)} markers say what happens, not one")
        found += [f"{case}: {each.area!r} is none of {', '.join(AREAS)}" for each in said if each.area not in AREAS]
    return found


def page(guards: Iterable[Guard]) -> str:
    """Return the page.

    Args:
        guards: Markers without `problems`.
    """
    guards = list(guards)
    lines = [HEAD]
    for area, title in AREAS.items():
        lines += [f"## {title}", "", "| case | what happens | tests |", "|---|---|---|"]
        for row in guards:
            if row.area == area:
                tests = dict.fromkeys(each.citation for each in guards if each.case == row.case)
                lines.append(f"| {row.case} | {row.outcome} | {', '.join(tests)} |")
        lines += [f"| {case} | {outcome} | nothing contains it |" for case, outcome in UNGUARDED.get(area, ())]
        lines.append("")
    return "\n".join(lines[:-1]) + "\n"


def main() -> None:
    """Print the page, or write it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help=f"put the page into {PAGE.relative_to(ROOT)}")
    write = parser.parse_args().write
    guards = all_guards()
    if found := problems(guards):
        raise SystemExit("\n".join(found))
    if write:
        PAGE.write_text(page(guards), encoding="utf-8")
    else:
        print(page(guards), end="")


if __name__ == "__main__":
    main()
