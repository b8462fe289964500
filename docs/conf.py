"""How the documentation site is built: `make docs`. Pages are Markdown that also reads well where it is stored."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_extensions"))
sys.path.insert(0, str(HERE.parent / "src"))

import epsteps

project = "epsteps"
author = "The epsteps developers"
project_copyright = f"2026, {author}"
version = release = epsteps.__version__

extensions = [
    "myst_parser",
    "numpydoc",
    "repository",
    "sphinx.ext.autodoc",
    "docstrings",
    "sphinx.ext.autosummary",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    "sphinx-mathjax-offline",
]
exclude_patterns = ["_build", "_extensions", "_templates", "gallery", "**/README.rst", "auto_gallery/**.ipynb"]
templates_path = ["_templates"]
highlight_language = "text"
nitpicky = True
# Types in signatures name private modules and other packages' classes: they are read, not followed.
nitpick_ignore_regex = [("py:(class|obj|data|exc)", ".*")]
suppress_warnings = ["config.cache"]

myst_enable_extensions = ["colon_fence", "dollarmath", "html_image"]
myst_heading_anchors = 4
myst_dmath_double_inline = True

autosummary_generate = True
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_member_order = "bysource"
autodoc_inherit_docstrings = False
maximum_signature_line_length = 88
toc_object_entries_show_parents = "hide"
numpydoc_show_class_members = False
numpydoc_xref_param_type = False

sphinx_gallery_conf = {
    "examples_dirs": "gallery",
    "gallery_dirs": "auto_gallery",
    "filename_pattern": r"\.py$",
    "abort_on_example_error": True,
    "remove_config_comments": True,
    "download_all_examples": False,
    "show_memory": False,
    "write_computation_times": False,
    "min_reported_time": 3600,
    "matplotlib_animations": False,
    "image_srcset": ["2x"],
    "within_subsection_order": "FileNameSortKey",
}

html_theme = "pydata_sphinx_theme"
html_title = "epsteps"
html_static_path = ["_static"]
html_css_files = ["epsteps.css"]
html_favicon = "_static/favicon.svg"
html_context = {"default_mode": "auto"}
html_show_sourcelink = False
html_use_index = False
html_theme_options = {
    "logo": {"text": "epsteps"},
    "header_links_before_dropdown": 6,
    "navbar_align": "left",
    "navbar_end": ["theme-switcher"],
    "navbar_persistent": ["search-button"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "show_toc_level": 2,
    "secondary_sidebar_items": ["page-toc"],
    "article_header_start": ["breadcrumbs"],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
html_sidebars = {"index": []}
