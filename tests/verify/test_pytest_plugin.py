"""The pytest plugin, run by a real pytest on a real (local) host."""

from __future__ import annotations

import os
import re

import pytest

pytestmark = pytest.mark.install

pytest_plugins = ["pytester"]

INVENTORY = """
all:
  vars: {gpuprov: {nouveau: {}}}
  hosts:
    here: {ansible_connection: local}
    gone: {ansible_connection: ssh, ansible_ssh_executable: /no/such/ssh}
"""
SITE = """
def test_site(host, spec, facts):
    assert host.file("/etc/passwd").exists
    assert "nouveau" in spec.capabilities
    assert facts.outputs()["effective_uid"].text.strip().isdigit()
"""


@pytest.fixture
def site(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makefile(".yaml", inventory=INVENTORY)
    pytester.makepyfile(test_site=SITE)
    return pytester


def run(site: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    return site.runpytest_subprocess("-p", "no:cacheprovider", "-rA", *arguments)


def test_each_check_is_a_test_and_site_tests_run_per_host(site: pytest.Pytester) -> None:
    result = run(site, "--gpuprov", "inventory.yaml", "--gpuprov-limit", "here")
    text = result.stdout.str()
    assert "gpuprov::here::nouveau.configured" in text
    assert "PASSED test_site.py::test_site[[]here[]]".replace("[[]", "[").replace("[]]", "]") in text
    assert "gone" not in text
    assert "Warning" not in text


NOTHING_OF_THE_CPUS = INVENTORY.replace("{nouveau: {}}", "{nouveau: {}, kernel: {sysctl: {vm.swappiness: 1}}}")


def test_what_asks_nothing_of_a_host_is_neither_passed_nor_skipped(
    site: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A spec with a sysctl alone asks nothing of the kernel's command line, for one."""
    for name in [one for one in os.environ if one.startswith("PYTEST_XDIST")]:
        monkeypatch.delenv(name)
    site.makefile(".yaml", inventory=NOTHING_OF_THE_CPUS)
    told = run(site, "--gpuprov", "inventory.yaml", "--gpuprov-limit", "here", "--junitxml", "junit.xml")
    assert told.parseoutcomes()["deselected"] >= 1
    assert "not applicable" not in told.stdout.str()
    assert "kernel.command_line" not in told.stdout.str()
    assert "not applicable" not in (site.path / "junit.xml").read_text()
    parallel = run(site, "--gpuprov", "inventory.yaml", "--gpuprov-limit", "here", "-n", "1")
    counted, apart = re.search(r"(\d+) n/a\b", parallel.stdout.str()), parallel.parseoutcomes()
    assert counted, parallel.stdout.str()[-600:]
    assert int(counted[1]) == told.parseoutcomes()["deselected"]
    assert apart.get("skipped") == told.parseoutcomes().get("skipped")
    assert apart["passed"] == told.parseoutcomes()["passed"]


def test_an_unreachable_host_fails_once_and_the_rest_is_skipped(site: pytest.Pytester) -> None:
    result = run(site, "--gpuprov", "inventory.yaml", "--gpuprov-limit", "gone")
    outcomes = result.parseoutcomes()
    assert outcomes["failed"] == 1
    assert outcomes["errors"] == 1  # the site test's facts
    assert outcomes["skipped"] >= 3
    assert "gone: host.reachable: unreachable" in result.stdout.str()
    assert "/no/such/ssh" in result.stdout.str()


def test_collecting_touches_no_host(site: pytest.Pytester) -> None:
    result = run(site, "--gpuprov", "inventory.yaml", "--collect-only", "-q")
    result.stdout.fnmatch_lines(["gpuprov::here::nouveau.running", "gpuprov::gone::nouveau.running"])
    assert result.ret == 0


def test_a_check_is_chosen_by_its_name(site: pytest.Pytester) -> None:
    result = run(site, "--gpuprov", "inventory.yaml", "-k", "here and nouveau.running")
    assert sum(result.parseoutcomes().get(word, 0) for word in ("passed", "failed", "skipped")) == 1


def test_without_the_option_testinfras_own_host_is_untouched(site: pytest.Pytester) -> None:
    site.makepyfile(test_site="def test_plain(host):\n    assert host.backend.get_connection_type() == 'local'\n")
    result = run(site)
    result.assert_outcomes(passed=1)
    assert "gpuprov::" not in result.stdout.str()


def test_a_site_may_have_its_own_fixtures_of_these_names(site: pytest.Pytester) -> None:
    site.makepyfile(
        test_site="import pytest\n@pytest.fixture\ndef spec():\n    return 1\ndef test_own(spec):\n    assert spec "
        "== 1\n"
    )
    result = run(site, "--gpuprov", "inventory.yaml", "-k", "test_own")
    assert result.parseoutcomes()["passed"] == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--gpuprov", "none.yaml"), "none.yaml"),
        (("--gpuprov-limit", "here"), "--gpuprov-limit needs --gpuprov INVENTORY"),
    ],
)
def test_bad_use_is_a_usage_error(site: pytest.Pytester, arguments: tuple[str, ...], message: str) -> None:
    result = run(site, *arguments)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert message in result.stderr.str() + result.stdout.str()
    assert "Traceback" not in result.stderr.str()
