"""What people install: the sdist and the wheel hold all that the product needs, and nothing of where they were made.

.ci/run builds them and says where they are (IPYAGENT_DIST); it also runs the demo on the wheel alone."""

from __future__ import annotations

import os
import re
import tarfile
import zipfile
from pathlib import Path

import pytest
import yaml

from ipyagent import __version__

ROOT = Path(__file__).parents[2]
DIST = os.environ.get("IPYAGENT_DIST", "")
needs_dist = pytest.mark.skipif(
    not DIST, reason="IPYAGENT_DIST does not say where sdist and wheel are; .ci/run builds them"
)
NEEDED = {
    *(f"notebooks/{path.name}" for path in ROOT.glob("notebooks/*.ipynb")),
    *(
        path.relative_to(ROOT).as_posix()
        for path in ROOT.glob("skills/**/*")
        if path.is_file() and "__pycache__" not in path.parts
    ),
}
"""Outside the package."""
IN_WHEEL = {"notebooks/": "ipyagent/notebooks/", "skills/": "ipyagent/bundled_skills/"}
COMPANION = "share/jupyter/labextensions/ipyagent"


def package() -> set[str]:
    """The files of the package itself, as the checkout has them."""
    kinds = {".py", ".js", ".css", ".md", ".txt", ".csv", ".tsv", ".jsonl", ".json", ".typed"}
    found = (path.relative_to(ROOT).as_posix() for path in (ROOT / "ipyagent").rglob("*") if path.suffix in kinds)
    return {path for path in found if "__pycache__" not in path and "/.ipyagent/" not in path}


@needs_dist
def test_sdist_and_wheel_carry_all_that_the_product_needs() -> None:
    (wheel,), (sdist,) = Path(DIST).glob("*.whl"), Path(DIST).glob("*.tar.gz")
    top = f"ipyagent-{__version__}/"
    with tarfile.open(sdist) as archive:
        source = {name.removeprefix(top) for name in archive.getnames()}
    with zipfile.ZipFile(wheel) as archive:
        built = set(archive.namelist())
    own = package()
    assert own | NEEDED | {"LICENSE", "README.md", "SECURITY.md", "CITATION.cff", "pyproject.toml"} <= source
    assert any(path.startswith("tests/") for path in source)
    companion = {path for path in own if path.startswith("ipyagent/labextension/")}
    data = f"ipyagent-{__version__}.data/data/{COMPANION}/"
    assert companion
    assert {path.replace("ipyagent/labextension/", data, 1) for path in companion} <= built
    assert own - companion <= built
    for path in NEEDED:
        for before, after in IN_WHEEL.items():
            assert not path.startswith(before) or path.replace(before, after, 1) in built, path
    assert not [
        path for path in source | built if re.search(r"__pycache__|\.pyc$|\.ipynb_checkpoints|/\.ipyagent/", path)
    ]


def test_the_citation_and_the_issue_forms_are_true() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert cited["version"] == __version__
    assert cited["license"] == "BSD-3-Clause"
    assert {"cff-version", "message", "title", "authors"} <= cited.keys()
    forms = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))
    assert [path.stem for path in forms] == ["bug", "config", "idea"]
    for path in forms:
        form = yaml.safe_load(path.read_text("utf-8"))
        assert path.stem == "config" or ({"name", "description", "body"} <= form.keys() and form["body"])
    told = (ROOT / "SECURITY.md").read_text("utf-8")
    for target in re.findall(r"\]\(([^)]+)\)", told):
        assert (ROOT / target).exists(), target
