from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from family_rig import FamilyRig


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
