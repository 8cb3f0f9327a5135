"""How Sphinx builds the reference site: guides in Markdown, op pages from the manifest.

The tag zh_CN builds the pages that are translated into Chinese, for the folder zh_CN of the same site.
"""

from __future__ import annotations

import sys
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sphinx.util.tags import Tags

    tags: Tags

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "TileOPs"
author = "TileOPs contributors"
copyright = "TileOPs contributors"  # noqa: A001 - Sphinx's name
release = metadata.version("tileops")

extensions = ["myst_parser", "op_pages", "op_links", "drawings", "languages", "chinese_search", "site_links"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
templates_path = ["_templates"]
exclude_patterns = ["_ext", "_templates", "_static", "data", "drawings", "locales", "examples"]
nitpicky = True

locale_dirs = ["locales"]
gettext_compact = False
if tags.has("zh_CN"):  # noqa: F821 - a name that Sphinx gives
    language = "zh_CN"
    extensions.remove("op_pages")
    extensions.remove("op_links")
    root_doc = "guides/compiling"
    include_patterns = ["guides/compiling.md"]

html_theme = "furo"
html_title = "TileOPs"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_use_index = False
html_show_copyright = False
html_copy_source = False
html_theme_options = {"navigation_with_keys": True}
pygments_style = "a11y-light"
pygments_dark_style = "a11y-dark"
