from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from compact_room import CompactRoom, compact_room


@pytest.fixture
def place(tmp_path: Path) -> Iterator[CompactRoom]:
    with compact_room(tmp_path) as made:
        yield made
