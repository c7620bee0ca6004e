"""The site: `sphinx-build -W docs FOLDER`. Pages are Markdown, the lessons the executed notebooks of `notebooks/`."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from sphinx.application import Sphinx

HERE = Path(__file__).parent

project = "ipyagent"
copyright = "the ipyagent contributors"
version = release = re.findall(r'"(.+)"', (HERE.parent / "ipyagent" / "version.py").read_text("utf-8"))[0]
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
nb_execution_mode = "off"  # they are run by the tests; the site shows what the repository has
nb_merge_streams = True
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
autodoc_member_order = "bysource"
autodoc_typehints = "description"
default_role = "code"  # docstrings quote names as Markdown does
html_theme = "pydata_sphinx_theme"
html_title = "ipyagent"
html_theme_options = {
    "show_prev_next": False,
    "footer_start": ["copyright"],
    "footer_end": [],
    "navbar_align": "left",
    "navbar_center": [],  # the whole list of pages is at the left
    "navbar_end": [],  # no switch of the theme: pictures follow the system's, so the pages do as well
}
html_context = {"default_mode": "auto"}
templates_path = ["templates"]
html_sidebars = {"**": ["pages"]}
html_static_path = ["site.css"]
html_css_files = ["site.css"]
html_show_sourcelink = False


def setup(app: Sphinx) -> None:
    """Put the notebooks beside the pages: Sphinx reads nothing outside its folder."""
    lessons = HERE / "lessons"
    lessons.mkdir(exist_ok=True)
    for notebook in sorted((HERE.parent / "notebooks").glob("*.ipynb")):
        shutil.copyfile(notebook, lessons / notebook.name)
    app.connect("build-finished", _pictures)


def _pictures(app: Sphinx, problem: Exception | None) -> None:
    """Pages name pictures in HTML, light and dark, as GitHub reads it: Sphinx does not copy those."""
    shutil.copytree(HERE / "pictures", Path(app.outdir) / "pictures", dirs_exist_ok=True)
