"""The site: Sphinx over the pages of this folder, which a repository host shows as they are, too.

`tox -e docs` builds it with warnings as errors.
"""

from __future__ import annotations

import re
from importlib.metadata import version as version_of
from typing import Any

project = "Collage"
author = "the Collage team"
release = version_of("collage-engine")
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_click"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
exclude_patterns = ["README.md", "style.md"]  # the repository host's list of pages; for contributors
html_theme = "furo"
html_title = f"Collage {release}"
myst_heading_anchors = 4
autodoc_typehints = "description"
autodoc_member_order = "bysource"

_LINK = re.compile(r"\[([^\]]+)\]\(((?:\.\./)+[^)#]+)(#[^)]*)?\)")


def _without_outside_links(app: Any, page: str, source: list[str]) -> None:
    """Turn links to files of the repository outside of this folder into their paths: the site does not have them."""
    depth = page.count("/")

    def plain(link: re.Match[str]) -> str:
        text, target = link[1], link[2]
        outside = target.startswith("../" * (depth + 1))
        return f"{text} (`{target.replace('../', '')}`)" if outside else link[0]

    source[0] = _LINK.sub(plain, source[0])


def setup(app: Any) -> None:
    """Register what changes the pages."""
    app.connect("source-read", _without_outside_links)
