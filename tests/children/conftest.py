from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from family_rig import KEY, FamilyRig


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment with a key and nothing else of the user's."""
    for name in ("AUTH_TOKEN", "BASE_URL", "MODEL", "CUSTOM_HEADERS", "PROFILE"):
        monkeypatch.delenv(f"ANTHROPIC_{name}", raising=False)
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    monkeypatch.setenv("IPYAGENT_HOME", str(tmp_path / "home"))
    return tmp_path


@pytest.fixture
def make_rig(home: Path) -> Iterator[Callable[..., FamilyRig]]:
    made: list[FamilyRig] = []

    def make(**options: Any) -> FamilyRig:
        made.append(FamilyRig(options.pop("folder", home / "project"), **options))
        return made[-1]

    yield make
    for rig in made:
        rig.close()


@pytest.fixture
def rig(make_rig: Callable[..., FamilyRig]) -> FamilyRig:
    return make_rig()
