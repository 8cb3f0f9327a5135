"""How Sphinx builds the reference site: guides in Markdown, op pages from the manifest."""

from __future__ import annotations

import sys
from importlib import metadata
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "TileOPs"
author = "TileOPs contributors"
copyright = "TileOPs contributors"  # noqa: A001 - Sphinx's name
release = metadata.version("tileops")

extensions = ["myst_parser", "op_pages"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
exclude_patterns = ["_ext", "_static", "data", "examples"]
nitpicky = True

html_theme = "furo"
html_title = "TileOPs"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_copyright = False
html_copy_source = False
html_theme_options = {"navigation_with_keys": True}
pygments_style = "friendly"
pygments_dark_style = "native"
