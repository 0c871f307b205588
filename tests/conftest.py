"""Fixtures and options that every test folder shares."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-goldens",
        action="store_true",
        help="write what the code produces now over tests/golden; review the diff",
    )


@pytest.fixture
def update_goldens(request: pytest.FixtureRequest) -> bool:
    """True where the run is to rewrite the goldens instead of comparing with them."""
    return bool(request.config.getoption("--update-goldens"))
