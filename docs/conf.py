"""The site: make docs. Pages in Markdown, a reference from docstrings, notebooks with the outputs of their full runs.

Building it runs no notebook: `make notebooks` does, in full, and `site_notebooks.py` says where outputs are kept.
"""

import os
import re
import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parent
sys.path[:0] = [str(DOCS.parent), str(DOCS)]
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
SOURCE = (DOCS.parent / "gpflow_deep" / "__init__.py").read_text(encoding="utf-8")

project = "gpflow-deep"
author = "The gpflow-deep developers"
copyright = author
version = release = re.findall(r'^__version__ = "(.+?)"', SOURCE, re.MULTILINE)[0]

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx-mathjax-offline",  # formulas without the network
    "sphinx.ext.viewcode",
    "myst_nb",
    "sphinx_copybutton",
    "site_pages",
    "site_docstrings",
    "site_notebooks",
]
source_suffix = {".rst": "restructuredtext", ".md": "myst-nb"}
exclude_patterns = ["_build", "_templates", "notebooks/outputs", "**/.ipynb_checkpoints"]
templates_path = ["_templates"]

# Warnings are errors, and what cannot be found is a warning: of our own names, all; of others, those that a role names.
nitpicky = True
OURS = "gpflow_deep|darn|rbm_tracking|ebp|compression|gpflow_deep_base|gpflow_deep_runs"
OTHERS = "tf|tfp|tensorflow|np|numpy|gpflow|keras|scipy|sklearn|pathlib|collections|typing|argparse"
nitpick_ignore_regex = [
    ("py:class", rf"(?!({OURS})\.).*"),  # types in signatures
    ("py:.*", rf"({OTHERS})\..*"),
    ("py:(exc|data|obj)", r"\w+"),  # of Python
]

default_role = "code"
autodoc_default_options = {"members": True, "member-order": "bysource", "show-inheritance": True}
autoclass_content = "both"  # of the class and of __init__, which has parameters, too
autodoc_typehints_format = "short"
autodoc_inherit_docstrings = False
autodoc_preserve_defaults = True
autosummary_generate = True
autosummary_generate_overwrite = True
python_maximum_signature_line_length = 88
python_use_unqualified_type_names = True

myst_enable_extensions = ["amsmath", "dollarmath", "colon_fence", "deflist", "fieldlist"]
myst_heading_anchors = 4
suppress_warnings = [
    "toc.empty_glob",  # as long as a folder has no pages
    "ref.python",  # of several classes of one name: the types of signatures name no module
    "myst-nb.lexer",  # of notebooks that are not executed
]

nb_execution_mode = "off"
nb_custom_formats = {
    page.name: ["site_notebooks.read", {"page": str(page)}] for page in (DOCS / "notebooks").glob("[0-9]*.md")
}
nb_merge_streams = True

html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["tables.css"]
html_title = f"gpflow-deep {release}"
html_theme_options = {"top_of_page_buttons": []}
html_copy_source = False
copybutton_prompt_text = r"\$ |>>> |\.\.\. "
copybutton_prompt_is_regexp = True
