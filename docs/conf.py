"""The documentation site: ``make docs`` writes it to ``build/docs``, offline, and loads nothing from outside."""

from __future__ import annotations

import atexit
import faulthandler
import multiprocessing.util  # so that it asks for its own end before we do, and is called after us
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "extensions"))

from fed_ucbvi.core.version import __version__

project = "fed-ucbvi"
author = "The fed-ucbvi developers"
project_copyright = author
version = release = __version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "mathml",  # ours, in extensions/
    "scripts",
    "generated_reference",
]
exclude_patterns = ["_build", "extensions"]
suppress_warnings = ["mystnb.unknown_mime_type"]

# Markdown
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath", "substitution"]
myst_heading_anchors = 4
myst_links_external_new_tab = True

# Notebooks: executed at every build; an error in a cell fails the build.
nb_execution_mode = "cache"
nb_execution_cache_path = str(Path(__file__).parent.parent / "build" / "notebooks")
nb_execution_timeout = 240
nb_execution_raise_on_error = True
nb_execution_show_tb = True
nb_execution_in_temp = True
nb_merge_streams = True


@atexit.register
def end_workers() -> None:
    """If a notebook fails, a process that executes others does not heed Sphinx, which would wait for it for ever."""
    for worker in multiprocessing.active_children():
        worker.kill()


faulthandler.dump_traceback_later(1800, exit=True)  # a build that hangs for any other reason says where

# The reference, from docstrings
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_class_signature = "mixed"
python_use_unqualified_type_names = True
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True

# The look
html_theme = "furo"
html_title = f"fed-ucbvi {release}"
html_static_path = ["site"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0b62a4", "color-brand-content": "#0b62a4"},
    "dark_css_variables": {"color-brand-primary": "#7cc0f5", "color-brand-content": "#7cc0f5"},
}
