"""`pytest --gpuprov inventory.yaml`: each check of each host as a test, and `host`, `spec` and `facts` for a site's own
tests.

Without the option only the option itself is registered: testinfra's own `host` fixture is unchanged. With it, a test
that uses `host` (testinfra's), `spec` (HostSpec) or `facts` (Facts) runs once per host of the inventory. Hosts are read
at the first test that needs them, all in parallel, once per session (once per worker with pytest-xdist).
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from functools import cached_property
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest
from _pytest.outcomes import Skipped

from gpuprov.core.sanitize import cleaned

if TYPE_CHECKING:
    from gpuprov.core.errors import UnreachableError
    from gpuprov.facts.probes.base import Facts
    from gpuprov.spec.model import HostSpec, RawHost
    from gpuprov.verify import Result


# The property of a test that was run and does not apply to its host.
NOTHING_ASKED = "gpuprov_nothing_asked"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("gpuprov")
    group.addoption(
        "--gpuprov", action="append", metavar="INVENTORY", help="verify the hosts of this inventory (repeatable)"
    )
    group.addoption("--gpuprov-limit", metavar="PATTERN", help="only these hosts, as in ansible's --limit")


def pytest_configure(config: pytest.Config) -> None:
    sources = config.getoption("--gpuprov")
    if sources:
        plugin = Plugin(sources, config.getoption("--gpuprov-limit"))
        config.pluginmanager.register(plugin, "gpuprov-session")
        config.pluginmanager.register(fixtures(plugin), "gpuprov-fixtures")
    elif config.getoption("--gpuprov-limit"):
        raise pytest.UsageError("--gpuprov-limit needs --gpuprov INVENTORY")


class Plugin:
    """The plugin that is registered if `--gpuprov` is given."""

    def __init__(self, sources: list[str], limit: str | None) -> None:
        self._sources, self._limit = sources, limit
        self.told_unreachable: set[str] = set()
        """Hosts whose single failure has been reported; their other tests are skipped."""

    @cached_property
    def pairs(self) -> dict[str, tuple[RawHost, HostSpec]]:
        """Return the hosts and their specs, by name; a bad inventory is a usage error."""
        from gpuprov.core.errors import GpuprovError
        from gpuprov.fleet.specs import load_fleet

        try:
            fleet = load_fleet(self._sources, self._limit)
        except GpuprovError as error:
            raise pytest.UsageError(cleaned(str(error))) from error
        return {raw.name: (raw, spec) for raw, spec in fleet.pairs}

    @cached_property
    def gathered(self) -> dict[str, Facts | UnreachableError]:
        """Return every host's facts, read once."""
        from gpuprov.facts.collect import gather
        from gpuprov.verify import probes_of

        return gather([(raw, probes_of(spec)) for raw, spec in self.pairs.values()])

    def results(self, host: str) -> dict[str, Result]:
        """Return the host's results by check; an unreachable host has only one."""
        from gpuprov.core.errors import UnreachableError
        from gpuprov.verify import evaluate, unreachable

        gathered = self.gathered[host]
        if isinstance(gathered, UnreachableError):
            result = unreachable(host, gathered)
            return {result.check: result}
        if host not in self._evaluated:
            self._evaluated[host] = {result.check: result for result in evaluate(self.pairs[host][1], gathered)}
        return self._evaluated[host]

    @cached_property
    def _evaluated(self) -> dict[str, dict[str, Result]]:
        return {}

    @cached_property
    def control_path(self) -> str:
        """Return the path for the ssh connection that the site tests' commands on one host share; a socket's path has
        108 bytes at most."""
        import tempfile

        return f"{tempfile.mkdtemp(prefix='gpuprov-', dir='/tmp')}/%C"

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, session: pytest.Session, items: list[pytest.Item]) -> None:
        root = Root.from_parent(session, name="gpuprov", nodeid="gpuprov")
        items[:0] = [item for name, (_, spec) in self.pairs.items() for item in self._items(root, name, spec)]

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> None:
        """Deselect the tests that do not apply to their host, once hosts may be read. Workers of pytest-xdist keep
        them: they have reported their tests by then."""
        config = session.config
        if config.option.collectonly or hasattr(config, "workerinput") or config.pluginmanager.has_plugin("dsession"):
            return
        asking_nothing = [item for item in session.items if isinstance(item, CheckItem) and item.asks_nothing]
        if asking_nothing:
            left_out = set(asking_nothing)
            session.items[:] = [item for item in session.items if item not in left_out]
            config.hook.pytest_deselected(items=asking_nothing)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if call.excinfo and isinstance(call.excinfo.value, NotAsked):
            report.user_properties.append((NOTHING_ASKED, True))
        return report

    def pytest_report_teststatus(self, report: Any) -> tuple[str, str, str] | None:
        """Return the status of a test that does not apply to its host: neither passed nor skipped."""
        return ("n/a", "", "N/A") if (NOTHING_ASKED, True) in getattr(report, "user_properties", ()) else None

    def _items(self, root: Root, name: str, spec: HostSpec) -> Iterator[CheckItem]:
        from gpuprov.verify.evaluate import checks_of

        parent = HostNode.from_parent(root, name=cleaned(name))
        for check in checks_of(spec):
            yield CheckItem.from_parent(parent, name=check.id, plugin=self, host=name)

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        if "gpuprov_host" in metafunc.fixturenames:
            metafunc.parametrize("gpuprov_host", list(self.pairs), indirect=True, scope="session")

    def pytest_unconfigure(self) -> None:
        if "control_path" in self.__dict__:
            from gpuprov.facts.collect.transport import close_shared

            close_shared(self.control_path)


def fixtures(plugin: Plugin) -> ModuleType:
    """Return the fixtures as their own plugin, created only on request, so that they never shadow testinfra's `host`
    elsewhere."""

    @pytest.fixture(scope="session")
    def gpuprov_host(request: pytest.FixtureRequest) -> str:
        """The name of the inventory host that the test runs for."""
        return str(request.param)

    @pytest.fixture(scope="session")
    def host(gpuprov_host: str) -> Any:
        """testinfra's host, reached as the inventory says."""
        from gpuprov.facts.collect.transport import site_host

        return site_host(plugin.pairs[gpuprov_host][0], control_path=plugin.control_path)

    @pytest.fixture(scope="session")
    def spec(gpuprov_host: str) -> HostSpec:
        """The host's spec according to the inventory."""
        return plugin.pairs[gpuprov_host][1]

    @pytest.fixture(scope="session")
    def facts(gpuprov_host: str) -> Facts:
        """The facts that gpuprov read from the host."""
        from gpuprov.core.errors import UnreachableError

        gathered = plugin.gathered[gpuprov_host]
        if isinstance(gathered, UnreachableError):
            pytest.fail(cleaned(str(gathered)), pytrace=False)
        return gathered

    module = ModuleType("gpuprov_fixtures")
    module.__dict__.update(gpuprov_host=gpuprov_host, host=host, spec=spec, facts=facts)
    return module


class Root(pytest.Collector):
    """The node above all hosts: `gpuprov`."""

    def collect(self) -> list[pytest.Item]:
        return []


class HostNode(Root):
    """The node of one host: `gpuprov::HOST`."""


class CheckItem(pytest.Item):
    """One check of one host: `gpuprov::HOST::CHECK`."""

    def __init__(self, *, plugin: Plugin, host: str, **rest: Any) -> None:
        super().__init__(**rest)
        self._plugin, self._host = plugin, host

    @property
    def asks_nothing(self) -> bool:
        """Return whether the check does not apply because of the host's spec or hardware."""
        result = self._plugin.results(self._host).get(self.name)
        return result is not None and result.status == "n/a"

    def runtest(self) -> None:
        results = self._plugin.results(self._host)
        result = results.get(self.name) or next(iter(results.values()))
        if result.status == "unreachable":
            if self._host in self._plugin.told_unreachable:
                pytest.skip(cleaned(f"{self._host} is unreachable"))
            self._plugin.told_unreachable.add(self._host)
        if result.status == "n/a":
            raise NotAsked(cleaned(f"not applicable: {result.found}"))
        if result.status == "skip":
            pytest.skip(cleaned(result.found))
        if result.status != "pass":
            raise CheckFailed(result)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        if isinstance(excinfo.value, CheckFailed):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[str, None, str]:
        return "gpuprov", None, cleaned(f"{self._host}: {self.name}")


class NotAsked(Skipped):
    """Raised for a check that does not apply because of the spec or the hardware."""


class CheckFailed(Exception):
    """Raised for a check that did not pass, with the text of its result."""

    def __init__(self, result: Result) -> None:
        rows = (("expected", result.expected), ("found", result.found), ("see", result.evidence), ("fix", result.fix))
        table = "\n".join(f"{name:<9} {value}" for name, value in rows if value)
        super().__init__(cleaned(f"{result.host}: {result.check}: {result.status}\n{table}"))
