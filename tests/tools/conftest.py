from __future__ import annotations

from pathlib import Path

import pytest
from tools_workspace import ShellWorkspace


@pytest.fixture
def workspace(tmp_path: Path) -> ShellWorkspace:
    root = tmp_path / "project"
    root.mkdir()
    return ShellWorkspace(root)
