"""vgpu_guest: what the role brings about, and what is refused before it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gpuprov.capabilities.base import Context
from gpuprov.capabilities.vgpu_guest import rules, token
from gpuprov.capabilities.vgpu_guest.desired import DESIRED, HEADER
from gpuprov.capabilities.vgpu_guest.fragment import VgpuGuest, differences
from gpuprov.facts.probes.base import Facts, Output
from gpuprov.facts.probes.gpus.vgpu import GRIDD, parse_gridd
from gpuprov.spec.model import Fragment, GpuSpec, HostSpec
from tests.capabilities import at_boot, contexts
from tests.capabilities import vgpu_host as vm
from tests.capabilities.vgpu_host import CHECKS, DIRECTORY, NAME, gridd, token_row
from tests.rows import run_each

CONFIG = "/etc/nvidia/gridd.conf"
FILE = VgpuGuest(token_file=f"/secrets/{NAME}")
TWO = token_row() + token_row(name="client_configuration_token_old.tok")


def made(block: VgpuGuest | None = None, text: str = "") -> dict[str, Any]:
    host = contexts.spec(vgpu_guest=block or VgpuGuest())
    return dict(DESIRED.make(contexts.context("vgpu_guest", host, {GRIDD.name: text or gridd()})))


def test_gridd_conf_has_what_is_not_gridds_default() -> None:
    assert made()["files"] == {CONFIG: f"{HEADER}FeatureType=1\n"}
    asked = VgpuGuest(licensing="server", server_address="licences.example", feature_type="vws", enable_ui=True)
    text = made(asked)["files"][CONFIG].removeprefix(HEADER)
    assert {"ServerAddress=licences.example", "FeatureType=2", "EnableUI=TRUE"} <= set(text.splitlines())
    assert "ServerPort" not in text


def test_what_is_written_has_no_difference() -> None:
    for block in (VgpuGuest(), VgpuGuest(feature_type="vcs", token_directory="/etc/tokens", license_interval=60)):
        lines = made(block)["files"][CONFIG].removeprefix(HEADER).splitlines()
        assert differences(block, parse_gridd(Output(gridd(*lines))).settings) == []


def test_a_token_of_the_controllers_is_alone_on_the_host() -> None:
    found = made(FILE, gridd(tokens=TWO))
    place = f"{DIRECTORY}/{NAME}"
    assert found["tasks"]["folder"] == {"path": DIRECTORY}
    assert found["tasks"]["token"] == {"src": FILE.token_file, "dest": place, "mode": "0744"}
    assert found["tasks"]["own"] == []
    assert found["absent"] == [f"{DIRECTORY}/client_configuration_token_old.tok"]
    assert found["tasks"]["unit"]["files"] == [CONFIG, DIRECTORY]


def test_tokens_of_the_host_get_their_mode_and_stay() -> None:
    found = made(VgpuGuest(token_mode="0600"), gridd(tokens=TWO))
    assert (found["absent"], "token" in found["tasks"]) == ([], False)
    assert [one["mode"] for one in found["tasks"]["own"]] == ["0600"] * 2
    elsewhere = made(VgpuGuest(token_directory="/etc/other"), gridd(tokens=TWO))
    assert elsewhere["tasks"]["own"] == []


def test_without_tokens_there_is_nothing_of_them() -> None:
    found = made(VgpuGuest(licensing="provider"), gridd(tokens=TWO))
    assert not {"folder", "token"} & set(found["tasks"])
    assert (found["absent"], found["tasks"]["own"], found["tasks"]["unit"]["files"]) == ([], [], [CONFIG])


def test_a_driver_without_a_unit_is_refused_before_anything_changes() -> None:
    text = gridd(unit=("not-found", "inactive", ""))
    ctx = Context(HostSpec(name="vm1"), VgpuGuest(), Facts({"gridd": Output(text)}))
    outcome = CHECKS["vgpu_guest.driver"].run(ctx)
    assert (outcome.status, "does not exist, although /usr/bin/nvidia-gridd does" in outcome.found) == ("fail", True)


def test_tokens_are_looked_for_where_the_spec_has_them(tmp_path: Path) -> None:
    """gridd.conf may still name another folder, or none."""
    (tmp_path / NAME).write_text("a.b.c\n")
    spec = HostSpec(name="vm1", capabilities={"vgpu_guest": VgpuGuest(token_directory=str(tmp_path))})
    printed = at_boot.shell(GRIDD.of(spec).script)
    assert [one.path for one in parse_gridd(Output(printed)).tokens] == [str(tmp_path / NAME)]
    assert str(tmp_path) not in at_boot.shell(GRIDD.of(HostSpec(name="vm1")).script)


GPU, DRIVER, BRANCH, TOKEN = (f"vgpu_guest.{name}" for name in ("gpu", "driver", "branch", "token"))
PLAIN, PROVIDER, WHOLE = VgpuGuest(), VgpuGuest(licensing="provider"), VgpuGuest(feature_type="vws")
PHYSICAL = vm.function("physical")


def host(model: str = "", **capabilities: Fragment) -> HostSpec:
    return HostSpec(name="vm1", gpu=GpuSpec(model=model) if model else None, capabilities=capabilities)


def libcuda(version: str) -> dict[str, str]:
    return {"driver_libraries": f"/usr/lib/x86_64-linux-gnu/libcuda.so.{version}\n"}


OLD_HOST = {"gpu_functions": vm.function(host="535.161.05|r535_87")}
NO_DRIVER = {"driver_libraries": "", "loaded_driver": ""}
SERVER = VgpuGuest(licensing="server", server_address="licence.example")


ROWS: list[tuple[str, VgpuGuest, dict[str, str], str, str, str]] = [
    # The GPU is what the licence is for.
    (GPU, PLAIN, {}, "pass", "1 vGPU, feature_type vgpu", ""),
    (GPU, PLAIN, {"gpu_functions": PHYSICAL}, "fail", "no vGPU: 0000:06:00.0", "take vgpu_guest out"),
    (GPU, PLAIN, {"gpu_functions": vm.function() + vm.function("physical", address="0000:07:00.0")}, "fail",
        "no vGPU: 0000:07:00.0", "vws"),
    (GPU, PLAIN, {"gpu_functions": vm.function("unknown")}, "fail", "not readable", "root"),
    (GPU, PLAIN, {"nvidia_functions": ""}, "fail", "no NVIDIA GPU", "give the VM a vGPU"),
    (GPU, WHOLE, {"gpu_functions": PHYSICAL}, "pass", "1 whole GPU, feature_type vws", ""),
    (GPU, WHOLE, {}, "fail", "vGPU: 0000:06:00.0", "feature_type: vgpu"),
    (GPU, PROVIDER, {"gpu_functions": PHYSICAL}, "pass", "the provider licenses either", ""),
    (GPU, PROVIDER, {}, "pass", "the provider licenses either", ""),
    # The guest driver fits.
    (BRANCH, PLAIN, {}, "pass", "driver 580.95.05, vGPU 19", ""),
    (BRANCH, PLAIN, libcuda("570.172.08"), "pass", "vGPU 18", ""),
    (BRANCH, PLAIN, libcuda("535.261.03"), "pass", "vGPU 16", ""),
    (BRANCH, PLAIN, {"driver_libraries": ""}, "pass", "580.95.05", ""),
    (BRANCH, PLAIN, NO_DRIVER, "skip", "vgpu_guest.driver", ""),
    (BRANCH, PLAIN, libcuda("575.57.08"), "fail", "575.57.08: no vGPU release", 'the nearest is "570" (vGPU 18)'),
    (BRANCH, PLAIN, libcuda("550.127.05"), "fail", "guest driver 550.127.05, vGPU manager 580.95.02", "of branch 580"),
    (BRANCH, PLAIN, libcuda("595.45.04"), "fail", "guest driver 595.45.04, vGPU manager 580.95.02", "of branch 580"),
    (BRANCH, PLAIN, OLD_HOST, "fail", "guest driver 580.95.05, vGPU manager 535.161.05", "of branch 535"),
    (BRANCH, PLAIN, {"gpu_functions": vm.function(host="|")}, "pass", "vGPU 19", ""),
    (BRANCH, WHOLE, {"gpu_functions": PHYSICAL} | libcuda("990.10.01"), "pass", "newer than the vGPU releases", ""),
    (BRANCH, SERVER, {}, "fail", "know no legacy licence server", "licensing: token"),
    (BRANCH, SERVER, {"gpu_functions": PHYSICAL} | libcuda("510.108.03"), "pass", "vGPU 14", ""),
    # It is there.
    (DRIVER, PLAIN, {}, "pass", "", ""),
    (DRIVER, PLAIN, {"gridd": vm.gridd(program=False)}, "fail", "", "nvidia-linux-grid-BRANCH"),
]  # fmt: skip


@run_each(("check", "fragment", "changed", "status", "found", "fix"), ROWS)
def test_before_anything_is_changed(
    check: str, fragment: VgpuGuest, changed: dict[str, str], status: str, found: str, fix: str
) -> None:
    outcome = vm.ask(check, fragment, **changed)
    assert (outcome.status, found in outcome.found, fix in outcome.fix) == (status, True, True), outcome


@run_each(
    ("fragment", "tokens", "status", "found"),
    [
        (PLAIN, vm.token_row(), "pass", vm.NAME),
        (PLAIN, vm.token_row(expires=str(vm.NOW + 9)), "pass", vm.NAME),
        (PLAIN, "", "fail", "no token there, and no token_file"),
        (PLAIN, vm.token_row(expires=str(vm.NOW - 9)), "fail", "expired: /etc/nvidia"),
        (VgpuGuest(token_directory="/srv/tokens"), vm.token_row(), "fail", "no token there"),
        (PROVIDER, "", "n/a", "no token is needed"),
    ],
)
def test_the_hosts_own_token(fragment: VgpuGuest, tokens: str, status: str, found: str) -> None:
    outcome = vm.ask(TOKEN, fragment, gridd=vm.gridd(tokens=tokens))
    assert (outcome.status, found in outcome.found) == (status, True), outcome


def test_the_controllers_token(tmp_path: Path) -> None:
    def asked(path: Path) -> str:
        outcome = vm.ask(TOKEN, VgpuGuest(token_file=str(path)))
        return f"{outcome.status} {outcome.found}"

    assert asked(vm.write_token(tmp_path)).startswith(f"pass {tmp_path}")
    assert asked(vm.write_token(tmp_path, exp=vm.NOW + 9)).startswith("pass")
    assert (
        asked(vm.write_token(tmp_path, exp=vm.NOW - 9)) == f"fail {tmp_path}/{vm.NAME} expired {token.day(vm.NOW - 9)}"
    )
    assert "cannot be read here: No such file" in asked(tmp_path / "client_configuration_token_none.tok")
    (tmp_path / vm.NAME).write_text("<html>sign in</html>", encoding="utf-8")
    assert "not a signed JSON web token" in asked(tmp_path / vm.NAME)
    (tmp_path / vm.NAME).write_text("a.!.c", encoding="utf-8")
    assert "not a signed JSON web token" in asked(tmp_path / vm.NAME)


def told(block: VgpuGuest, spec: HostSpec | None = None) -> list[str]:
    return [f"{one.severity} {one.message}; {one.fix}" for one in rules(spec or host(), block)]


@run_each(("seconds", "day"), [(1803859200, "2027-03-01"), (-(10**15), "1970-01-01"), (10**15, "9999-12-31")])
def test_a_token_may_name_a_day_that_no_calendar_has(seconds: int, day: str) -> None:
    assert token.day(seconds) == day


def test_a_good_spec() -> None:
    assert told(PLAIN, host("L40S")) == []
    assert told(SERVER) == []
    assert told(VgpuGuest(feature_type="vcs"), host(mig=PLAIN, fabric_manager=PLAIN)) == []
    assert told(PROVIDER) == []


@run_each(
    ("block", "spec", "words"),
    [
        (PLAIN, host("RTX4090"), "RTX4090 has no vGPU on any hypervisor"),
        (PLAIN, host(mig=PLAIN), "vgpu_guest contradicts mig"),
        (PLAIN, host(fabric_manager=PLAIN), "vgpu_guest contradicts fabric_manager"),
        (PLAIN, host(nvidia_driver=PLAIN),
            "which nvidia_driver does not install; nvidia_driver: false for these hosts"),
        (PROVIDER, host(nvidia_driver=PLAIN),
            "which nvidia_driver does not install; nvidia_driver: false for these hosts"),
        (VgpuGuest(licensing="server"), host(), "server_address is not set"),
        (VgpuGuest(licensing="server", server_address="a", proxy_address="b", proxy_port=1), host(),
            "proxy_address means nothing with"),
        (VgpuGuest(server_address="a"), host(), "server_address means nothing with licensing token"),
        (VgpuGuest(licensing="provider", token_file="/x/client_configuration_token_1.tok"), host(),
            "token_file means nothing"),
        (VgpuGuest(licensing="provider", feature_type="vcs"), host(), "feature_type means nothing"),
        (VgpuGuest(licensing="server", server_address="a", token_mode="0600"), host(), "token_mode means nothing"),
        (VgpuGuest(proxy_address="proxy"), host(), "proxy_address and proxy_port go together"),
        (VgpuGuest(proxy_port=3128), host(), "proxy_address and proxy_port go together"),
    ],
)  # fmt: skip
def test_what_a_spec_must_not_say(block: VgpuGuest, spec: HostSpec, words: str) -> None:
    found = told(block, spec)
    assert any(words in one for one in found), found
    assert all(one.startswith("error") for one in found)


def test_tokens_are_judged_offline(tmp_path: Path) -> None:
    missing = told(VgpuGuest(token_file=str(tmp_path / vm.NAME)))
    assert [one.partition(" ")[0] for one in missing] == ["warning"]
    expired = told(VgpuGuest(token_file=str(vm.write_token(tmp_path, exp=1_600_000_000))))
    assert len(expired) == 1
    assert "expired 2020-09-13" in expired[0]
    assert expired[0].startswith("error")
