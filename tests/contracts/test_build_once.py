"""nvidia_driver.build_host: what the tasks on a served host refuse, record and release."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from gpuprov.host_code.driver import prebuilt
from tests import here

DRIVER: dict[str, Any] = {
    "module": "nvidia-kernel-dkms",
    "packages": {"nvidia-kernel-dkms": "535.261.03-1"},
    "flavour": "proprietary",
    "kernels": ["6.1.0-47"],
    "installed": "",
    "prebuilt": [],
    "prebuilt_sums": "",
    "reload": True,
    "moves": False,
    **{name: [] for name in ("source_packages", "before", "install", "remove", "stand_in")},
}
ASKED = {"driver": DRIVER, "builder": "builder", "platform": "debian12"}
AWAITED = "{{ __nvidia_driver_judged.awaited | default(omit) }}"
BRING: dict[str, Any] = {
    "name": "Bring",
    "gpuprov_step": {"name": "prebuilt", "arguments": {"state": "brought", **ASKED, "awaited": AWAITED}},
    "when": "inventory_hostname == 'served'",
}
KNOWN = {
    "ansible_facts": {"architecture": "x86_64"},
    "gpuprov_judged": {"desired": {"nvidia_driver": DRIVER}},
}
"""Variables of each host as seen from another host: variables set by a play are not among them."""
PACKED = {"version": "535.261.03-1", "flavour": "proprietary", "sums": "ab", "sha256": "cd", "kernels": ["6.1.0-47"]}


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache of the machine that runs Ansible, without its file extension."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "gpuprov/modules").mkdir(parents=True)
    return Path(prebuilt.make_cache_path(os.environ, "debian12", "x86_64", "builder", DRIVER["module"], "535.261.03-1"))


def play(folder: Path, tasks: list[dict[str, Any]], inventory: str = "builder,served") -> str:
    """Return the output of ansible-playbook for these tasks on a build host and a host that it serves."""
    done = here.play(folder, {"tasks": tasks}, inventory=inventory, extra=KNOWN)
    return f"{done.stdout}{done.stderr}"


def builder(action: dict[str, Any]) -> dict[str, Any]:
    """Return a task for the build host alone, whose failure is rescued like that of the driver's installation."""
    after = {"name": "Give up", "ansible.builtin.fail": {"msg": "given up"}}
    task = {"name": "Build", "when": "inventory_hostname == 'builder'", **action}
    return {"name": "Install", "block": [task, BRING], "rescue": [after]}


FAILS = {"ansible.builtin.fail": {"msg": "no compiler"}}
GIVES = {"ansible.builtin.set_fact": {"__nvidia_driver_pack": {"given": True}}}


@pytest.mark.install
def test_a_build_host_that_failed_gives_out_nothing_of_an_earlier_run(tmp_path: Path, cache: Path) -> None:
    cache.with_name(f"{cache.name}.json").write_text(json.dumps(PACKED))
    told = play(tmp_path, [builder(FAILS)])
    assert "builder failed in this run; nothing was installed on served" in told


@pytest.mark.install
def test_a_build_host_that_failed_before_it_could_build_gives_out_nothing_of_an_earlier_run(
    tmp_path: Path, cache: Path
) -> None:
    """In act 2 it is not among the hosts any more, as if it were not in the run."""
    cache.with_name(f"{cache.name}.json").write_text(json.dumps(PACKED))
    judge = {
        "name": "Judge",
        "gpuprov_step": {"name": "prebuilt", "arguments": {"state": "judged", **ASKED}},
        "register": "__nvidia_driver_judged",
        "when": "inventory_hostname == 'served'",
    }
    fails = {"name": "Try", "when": "inventory_hostname == 'builder'", **FAILS}
    done = here.play(tmp_path, {"tasks": [judge, fails]}, {"tasks": [BRING]}, inventory="builder,served", extra=KNOWN)
    assert "builder failed in this run; nothing was installed on served" in done.stdout + done.stderr


@pytest.mark.install
@pytest.mark.parametrize(
    ("known", "reason"),
    [
        (PACKED | {"kernels": ["6.1.0-46"]}, "it builds for 6.1.0-46, and served can boot 6.1.0-47"),
        (PACKED | {"flavour": "open"}, "it has 535.261.03-1 (open), and served would get"),
        (PACKED | {"version": "535.247.01-1"}, "it has 535.247.01-1 (proprietary), and served would get"),
        ({}, "has packed no modules in this run"),
    ],
)
def test_what_lies_in_the_cache_is_judged_itself(
    tmp_path: Path, cache: Path, known: dict[str, Any], reason: str
) -> None:
    cache.with_name(f"{cache.name}.json").write_text(json.dumps(known))
    assert reason in play(tmp_path, [builder(GIVES)])


@pytest.mark.install
def test_before_the_build_host_has_packed_it_is_asked_what_it_will_have(tmp_path: Path, cache: Path) -> None:
    judge = {
        "name": "Judge",
        "gpuprov_step": {"name": "prebuilt", "arguments": {"state": "judged", **ASKED}},
        "register": "found",
    }
    show = {
        "name": "Show",
        "ansible.builtin.debug": {"msg": "needed {{ found.needed }} {{ found.install }} stop {{ found.stop }}"},
    }
    assert '"msg": "needed False [] stop False"' in play(tmp_path, [judge, show])
    assert "and is not in this run" in play(tmp_path, [judge], inventory="served,")
    cache.with_name(f"{cache.name}.json").write_text(json.dumps(PACKED))
    place = "/var/lib/gpuprov/prebuilt/nvidia-kernel-dkms-prebuilt.deb"
    assert f"\"needed True ['--reinstall', '{place}'] stop True\"" in play(tmp_path, [judge, show], inventory="served,")
