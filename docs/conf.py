import re
from importlib.metadata import version as installed_version
from typing import Any

project = "rectifier"
author = "The rectifier developers"
copyright = author
release = version = installed_version("rectifier")
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
html_theme = "furo"
html_title = f"rectifier {release}"
exclude_patterns = ["_build"]
autodoc_typehints = "none"
autodoc_member_order = "bysource"
myst_enable_extensions = ["deflist"]
myst_heading_anchors = 3


def mark_own_arguments(app: Any, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """Turn the heading "Own arguments (...):" into a sentence and the heading that napoleon knows."""
    for position, line in enumerate(lines):
        if found := re.fullmatch(r"( *)Own arguments \((.+)\):", line):
            lines[position : position + 1] = [f"{found[1]}{found[2]}.", "", f"{found[1]}Args:"]
            return


def setup(app: Any) -> None:
    app.connect("autodoc-process-docstring", mark_own_arguments, priority=100)  # before napoleon
