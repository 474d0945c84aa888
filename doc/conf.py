"""Build the documentation: python -m sphinx -W -b html doc doc/_build/html."""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
# The gallery runs the examples in this process; the figures need no screen.
os.environ.setdefault("MPLBACKEND", "agg")

import sklearn_anneal  # noqa: E402

project = "sklearn_anneal"
author = "The sklearn_anneal developers"
copyright = f"2026, {author}"
release = version = sklearn_anneal.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.intersphinx",
    "sphinx.ext.mathjax",
    "sphinx-mathjax-offline",  # formulas are drawn without a network
    "numpydoc",
    "myst_parser",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    "matplotlib.sphinxext.plot_directive",
]
exclude_patterns = ["_build", "_templates"]
templates_path = ["_templates"]
source_suffix = {".rst": "restructuredtext", ".md": "markdown"}

autosummary_generate = True
autodoc_typehints = "none"  # the docstrings give types and shapes
numpydoc_show_class_members = False  # the class template lists the methods
numpydoc_use_plots = True  # examples that import matplotlib show their figures
plot_include_source = True
plot_html_show_source_link = False
plot_html_show_formats = False
plot_formats = [("png", 100)]
# The contents of a page list methods by their own names.
toc_object_entries_show_parents = "hide"

# Names of scikit-learn are links. Without a network, those that the pages mention are in a file.
intersphinx_mapping = {"sklearn": ("https://scikit-learn.org/stable/", (None, "sklearn.inv"))}
intersphinx_timeout = 10

sphinx_gallery_conf = {
    "examples_dirs": str(ROOT / "examples"),
    "gallery_dirs": "auto_examples",
    "filename_pattern": r"\.py$",  # all of them are run
    "copyfile_regex": r"index\.rst",  # the examples under headings
    "only_warn_on_example_error": False,
    "abort_on_example_error": True,
    "download_all_examples": False,
    "remove_config_comments": True,
    "doc_module": ("sklearn_anneal",),
    "backreferences_dir": "generated/backreferences",
}

html_theme = "pydata_sphinx_theme"
html_title = "sklearn_anneal"
html_static_path = ["_static"]
html_css_files = ["custom.css"]
html_show_sourcelink = False
html_theme_options = {
    "logo": {"text": "sklearn_anneal"},
    "github_url": "https://github.com/sklearn-anneal/sklearn-anneal",
    "header_links_before_dropdown": 7,
    "navbar_persistent": ["search-button"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "show_prev_next": False,
    "navigation_with_keys": False,
    "secondary_sidebar_items": ["page-toc"],
}
# Pages that have no pages below them.
html_sidebars = {page: [] for page in ("index", "quick_start", "changelog")}


def skip_member(app, what, name, obj, skip, options):
    """Leave members that scikit-learn defines or generates to its own pages.

    Their texts link to labels that exist only in scikit-learn's documentation.
    """
    defined_in = getattr(obj, "__module__", None) or ""
    return True if defined_in.partition(".")[0] == "sklearn" else None


def setup(app):
    app.connect("autodoc-skip-member", skip_member)
