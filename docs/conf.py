from importlib.metadata import version as installed_version

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
