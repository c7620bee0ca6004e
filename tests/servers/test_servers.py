"""Every product in every situation: all is well, or one line says what is wrong and what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.servers.products import PRODUCTS, Product
from tests.servers.situations import SITUATIONS

SHORT = (
    "tools, thinking, streams", "no such model", "no tools", "key refused", "budget spent", "error with status 200",
    "400 without a body",
)  # fmt: skip
EACH = [pytest.param(name, marks=() if name in SHORT else pytest.mark.slow, id=name) for name in SITUATIONS]


@pytest.mark.parametrize("product", PRODUCTS, ids=lambda product: product.name)
@pytest.mark.parametrize("situation", EACH)
def test_a_session_with_another_server_works_or_says_in_a_line_what_to_do(
    situation: str, product: Product, tmp_path: Path
) -> None:
    SITUATIONS[situation](product, tmp_path)
