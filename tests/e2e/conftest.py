"""Fixtures of the end-to-end tests: the lab, and the hosts that later tests start from."""

from __future__ import annotations

from collections.abc import Generator, Iterator

import pytest

from gpuprov.simulate import container, hosts
from tests.e2e import kernels
from tests.e2e.lab import SPEC, First, Lab, Moved, laboratory, spec_of
from tests.e2e.machine import Machine

LAB = pytest.StashKey[Lab]()


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Lab]:
    """The lab of this test run."""
    with laboratory(tmp_path_factory.mktemp("e2e")) as made:
        request.config.stash[LAB] = made
        yield made


@pytest.fixture(scope="module")
def site(request: pytest.FixtureRequest) -> Iterator[Machine]:
    """The module's own host: its HOST, called NAME."""
    name = request.module.NAME
    container.down(name)
    try:
        yield Machine(hosts.up(name, request.module.HOST))
    finally:
        container.down(name)


@pytest.fixture(scope="session")
def versions(lab: Lab) -> tuple[str, str]:
    """The newest and the second newest driver version of the simulated hosts' own index."""
    offered = lab.machine("index").offered()
    assert len(offered) >= 2, f"the index offers only {offered}"
    return offered[0], offered[1]


@pytest.fixture(scope="session")
def first(lab: Lab) -> First:
    """A fresh host with simulated GPUs, whose modules build in seconds: planned, then applied; its disk is the snapshot
    `newest`."""
    machine = lab.simulated("first")
    inventory = str(lab.inventory(SPEC, machine))
    before = machine.state()
    plan = lab.run("plan", inventory)
    between = machine.state()
    applied = lab.run("apply", inventory, "--yes")
    if applied.code == 0:
        lab.freeze(machine, "newest")
    return First(machine, inventory, before, plan, between, applied)


@pytest.fixture(scope="session")
def newest(first: First) -> str:
    """The snapshot of a host that has the newest driver."""
    assert first.apply.code == 0, first.apply
    return "newest"


@pytest.fixture(scope="session")
def moved(lab: Lab, newest: str, versions: tuple[str, str]) -> Moved:
    """A host with simulated GPUs that had the newest driver, then got the second newest. Its disk is the snapshot
    `older`."""
    machine = lab.simulated("moved", newest)
    machine.has_driver(versions[0])
    applied = lab.run("apply", lab.inventory(spec_of(versions[1]), machine), "--yes")
    if applied.code == 0:
        lab.freeze(machine, "older")
    return Moved(machine, applied)


@pytest.fixture(scope="session")
def older(moved: Moved) -> str:
    """The snapshot of a host with simulated GPUs and the second newest driver."""
    assert moved.apply.code == 0, moved.apply
    return "older"


@pytest.fixture(scope="session")
def older_kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[kernels.Older]:
    """The disk of a machine whose kernel its archive has a newer one of; without a driver."""
    with kernels.older(tmp_path_factory.mktemp("older"), "e2e-older-kernel") as made:
        yield made


@pytest.fixture(autouse=True)
def _put_away(request: pytest.FixtureRequest) -> Iterator[None]:
    """Each test leaves none of its own hosts."""
    yield
    if "lab" in request.fixturenames:
        request.config.stash[LAB].clear()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Commands are noted under the test that ran them."""
    if LAB in item.config.stash:
        item.config.stash[LAB].test = item.name


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failed test shows gpuprov's log and the hosts' journals."""
    report = yield
    if report.failed and LAB in item.config.stash:
        lab = item.config.stash[LAB]
        report.sections.append(("gpuprov's log", lab.log()))
        for row in container.listing():
            if row.name in lab.machines and item.name == lab.test:
                text = lab.machines[row.name].sh(
                    "journalctl --no-pager --priority warning --lines 20 || true; dpkg --audit || true"
                )
                report.sections.append((f"journal of {row.name}", text))
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Every command's wall time."""
    if LAB not in config.stash:
        return
    terminalreporter.section("end-to-end commands")
    for test, ran in config.stash[LAB].ran:
        shown = " ".join(word for word in ran.command[1:] if "/" not in word)
        terminalreporter.write_line(f"{ran.seconds:7.1f} s  exit {ran.code:3d}  {shown:40s} {test}")
