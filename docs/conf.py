"""Sphinx builds the site from README.md, docs/ and benchmarks/results/: `make docs`."""

import regard

project = "regard"
copyright = "the regard authors, Apache-2.0"  # noqa: A001
release = version = regard.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.viewcode"]
# The source directory is the repository, so that relative links work here as they do in a clone.
root_doc = "docs/index"
include_patterns = [
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "docs/*.md",
    "benchmarks/results/*.md",
    "src/regard/models/*/README.md",
]
exclude_patterns = [".*", "docs/_build", "runs", "tests"]

myst_heading_anchors = 4
highlight_language = "text"
default_role = "code"
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
python_maximum_signature_line_length = 100
autodoc_preserve_defaults = True

html_theme = "furo"
html_title = "regard"
html_copy_source = False
html_extra_path = ["redirect"]  # index.html, which leads to docs/index.html
