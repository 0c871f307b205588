"""Fixtures and options that every test folder shares."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests import spark_classes

collect_ignore_glob = [
    "annotations/whitebox/followed_classes.py",
    "corpus/[!t]*/*",
    "golden/*",
    "imported/scripts/*",
]
"""Goldens, and scripts that are read, or would start Spark."""

# How long an example takes, to make or to check, says something about the machine only. Before a
# change lands the examples are the same every time; whoever runs the tests by hand has new ones.
settings.register_profile(
    "blazes",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=bool(os.environ.get("CI")),
)
settings.load_profile("blazes")

# A shell that starts something in the background without job control has it ignore SIGINT.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # each command would compile the package anew
for variable, value in spark_classes.environment().items():
    os.environ.setdefault(variable, value)

LONGEST = (
    "test_seal_faults",
    "test_flux_on_spark",
    "test_drivers",
    "test_flux_soak_on_spark",
    "test_tutorial",
    "test_wheel",
)
"""Files that take minutes come first, so that no process is left alone with one at the end."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    place = {stem: number for number, stem in enumerate(LONGEST)}
    items.sort(key=lambda item: place.get(item.path.stem, len(place)))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-goldens",
        action="store_true",
        help="write what the code produces now over tests/golden; review the diff",
    )


@pytest.fixture(scope="session", autouse=True)
def cache_of_the_tests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What is kept of user code that was read goes into a folder of this run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture
def update_goldens(request: pytest.FixtureRequest) -> bool:
    """True where the run is to rewrite the goldens instead of comparing with them."""
    return bool(request.config.getoption("--update-goldens"))


@pytest.fixture(scope="session")
def zookeeper_hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real ZooKeeper server that all tests share; take an application name of your own."""
    from flux_runtime.zookeeper.embedded import EmbeddedZooKeeper

    with EmbeddedZooKeeper(tmp_path_factory.mktemp("zookeeper"), fsync=False) as server:
        yield server.hosts
