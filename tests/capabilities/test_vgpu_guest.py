"""vgpu_guest: gridd.conf, the token, nvidia-gridd alive, licensed."""

from __future__ import annotations

import hashlib
from pathlib import Path

from gpuprov.capabilities.vgpu_guest import export
from gpuprov.capabilities.vgpu_guest.fragment import VgpuGuest
from gpuprov.facts.probes.base import Output
from tests.capabilities import vgpu_host as vm
from tests.capabilities.asking import facts, older
from tests.capabilities.contents_host import unit
from tests.rows import run_each

FILES, TOKEN, ENABLED, ACTIVE, LICENSED = (
    f"vgpu_guest.{name}" for name in ("files", "token_installed", "enabled", "active", "licensed")
)
CONFIG = "/etc/nvidia/gridd.conf"
PLAIN = VgpuGuest()
SERVER = VgpuGuest(
    licensing="server", server_address="licence.example", backup_server_address="spare.example", backup_server_port=7171
)
PROVIDER = VgpuGuest(licensing="provider")
FULL = VgpuGuest(
    feature_type="vcs",
    token_directory="/srv/tokens",
    proxy_address="proxy.example",
    proxy_port=3128,
    license_interval=60,
    linger_interval=5,
    enable_ui=True,
)
FULL_SETTINGS = (
    *("FeatureType=4", "ClientConfigTokenPath=/srv/tokens", "ProxyServerAddress=proxy.example", "ProxyServerPort=3128"),
    *("LicenseInterval=60", "LingerInterval=5", "EnableUI=TRUE"),
)


@run_each(
    ("fragment", "text", "found"),
    [
        (PLAIN, vm.gridd("FeatureType=0"), "FeatureType is 0, expected 1"),
        (PLAIN, vm.gridd("EnableUI=FALSE"), "FeatureType is not set, expected 1"),
        (PLAIN, vm.gridd("FeatureType=1", "ServerAddress=old.example"),
         "ServerAddress is old.example, expected nothing"),
        (PLAIN, vm.gridd("FeatureType=1", "IgnoreSP=TRUE"), "IgnoreSP is TRUE, expected nothing"),
        (PLAIN, vm.gridd("FeatureType=1", "LicenseInterval=10"), "LicenseInterval is 10, expected 1440"),
        (PLAIN, vm.gridd("FeatureType=1", "EnableUI=false # off"), ""),
        (FULL, vm.gridd(*FULL_SETTINGS[:-1]), "EnableUI is FALSE, expected TRUE"),
        (FULL, vm.gridd(*FULL_SETTINGS[1:]), "FeatureType is not set, expected 4"),
        (FULL, vm.gridd(*FULL_SETTINGS), ""),
        (SERVER, vm.gridd("FeatureType=1", "ServerAddress=licence.example", "BackupServerAddress=spare.example"),
         "BackupServerPort is 7070, expected 7171"),
        (PROVIDER, vm.gridd("FeatureType=0"), "FeatureType is 0, expected nothing"),
        (PROVIDER, vm.gridd("EnableUI=FALSE"), ""),
    ],
)  # fmt: skip
def test_another_configuration_is_told_by_what_it_does(fragment: VgpuGuest, text: str, found: str) -> None:
    outcome = vm.ask(FILES, fragment, gridd=text, contents=f"sum|0  {CONFIG}\n")
    told = f"another text ({found})" if found else "another text"
    assert (outcome.status, outcome.found) == ("fail", f"{CONFIG}: {told}"), outcome
    assert [(one.name, one.before) for one in outcome.changes] == [(CONFIG, told), (UNIT, "active")], "it is restarted"


@run_each(
    ("fragment", "tokens", "status", "found"),
    [
        (PLAIN, vm.token_row(), "pass", "root's, mode 0744"),
        (PLAIN, "", "fail", "no such token"),
        (PLAIN, vm.token_row(mode="644"), "fail", "mode 0644"),
        (PLAIN, vm.token_row(mode="600"), "fail", "mode 0600"),
        (VgpuGuest(token_mode="0600"), vm.token_row(mode="600"), "pass", "mode 0600"),
        (PLAIN, vm.token_row(owner="ubuntu"), "fail", "ubuntu's, mode 0744"),
        (VgpuGuest(token_directory="/srv/tokens"), vm.token_row(), "fail", "no such token"),
        (PROVIDER, "", "n/a", "licensing is provider"),
        (SERVER, "", "n/a", "licensing is server"),
    ],
)
def test_token_of_the_host(fragment: VgpuGuest, tokens: str, status: str, found: str) -> None:
    outcome = vm.ask(TOKEN, fragment, gridd=vm.gridd(tokens=tokens))
    assert (outcome.status, found in outcome.found) == (status, True), outcome


def test_token_of_the_controller(tmp_path: Path) -> None:
    path = vm.write_token(tmp_path)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    block = VgpuGuest(token_file=str(path))
    same = vm.token_row(sha=digest)
    assert vm.ask(TOKEN, block, gridd=vm.gridd(tokens=same)).status == "pass"
    other = vm.ask(TOKEN, block, gridd=vm.gridd())
    assert (other.status, other.found) == ("fail", f"sha256 {vm.SHA[:12]}, the controller's is {digest[:12]}")
    two = vm.ask(TOKEN, block, gridd=vm.gridd(tokens=same + vm.token_row(name="client_configuration_token_old.tok")))
    assert (two.status, "other tokens beside it" in two.found, two.changes[0].after) == ("fail", True, "removed")
    renamed = vm.ask(TOKEN, block, gridd=vm.gridd(tokens=vm.token_row(name="client_configuration_token_old.tok")))
    assert (renamed.status, renamed.found) == ("fail", "no such token")
    path.unlink()
    gone = vm.ask(TOKEN, block, gridd=vm.gridd(tokens=same))
    assert (gone.status, "No such file" in gone.found) == ("fail", True)


def test_nothing_of_a_token_is_told(tmp_path: Path) -> None:
    path = vm.write_token(tmp_path)
    for outcome in (
        vm.ask(TOKEN, VgpuGuest(token_file=str(path)), gridd=vm.gridd()),
        vm.ask("vgpu_guest.token", VgpuGuest(token_file=str(path))),
    ):
        assert not [part for part in path.read_text(encoding="utf-8").split(".") if part in str(outcome)]


def test_a_vaulted_token_is_not_compared(tmp_path: Path) -> None:
    path = tmp_path / vm.NAME
    path.write_text("$ANSIBLE_VAULT;1.1;AES256\n6162\n", encoding="utf-8")
    assert vm.ask(TOKEN, VgpuGuest(token_file=str(path))).status == "pass"
    assert "in Ansible's vault" in vm.ask("vgpu_guest.token", VgpuGuest(token_file=str(path))).found


FAILED = (
    "Failed to acquire license from api.cls.licensing.nvidia.com (Info: NVIDIA RTX Virtual Workstation - "
    "Error: timed out)"
)

UNIT = "nvidia-gridd.service"


@run_each(
    ("check", "text", "state", "found", "change"),
    [
        (ENABLED, vm.gridd(), "", f"{UNIT} enabled", ""),
        (ENABLED, vm.gridd(), unit(UNIT, "active", "generated"), f"{UNIT} enabled", ""),
        (ENABLED, vm.gridd(), unit(UNIT, "active", "disabled"), f"{UNIT} is disabled", "enabled"),
        (ENABLED, vm.gridd(), unit(UNIT, "inactive", ""), f"{UNIT} is not-found", "enabled"),
        (ACTIVE, vm.gridd(), "", f"{UNIT} active", ""),
        (ACTIVE, vm.gridd(log=FAILED), unit(UNIT, "failed", "enabled"), f'{UNIT} is failed ("{FAILED}', "active"),
        (ACTIVE, vm.gridd(), unit(UNIT, "inactive", "enabled"), f"{UNIT} is inactive", "active"),
    ],
)
def test_daemon(check: str, text: str, state: str, found: str, change: str) -> None:
    outcome = vm.ask(check, PLAIN, gridd=text, contents=state)
    assert (outcome.status, found in outcome.found) == ("fail" if change else "pass", True), outcome
    assert [one.after for one in outcome.changes] == ([change] if change else [])
    assert ("its .run brings a unit" in outcome.fix) == ("not-found" in outcome.found)


def test_a_daemon_that_has_read_another_token() -> None:
    token = f"{vm.DIRECTORY}/{vm.NAME}"
    outcome = vm.ask(ACTIVE, PLAIN, unit_reads=older(UNIT, CONFIG, token))
    assert (outcome.status, outcome.found) == ("fail", f"{UNIT} is older than {CONFIG}, {token}"), outcome
    assert [one.after for one in outcome.changes] == ["started anew"]


WHOLE = VgpuGuest(feature_type="vcs")


@run_each(
    ("fragment", "changed", "status", "found", "fix"),
    [
        (PLAIN, {}, "pass", "0000:06:00.0 NVIDIA Virtual Compute Server: Licensed (Expiry: 2027-1-16 9:5:7 GMT)", ""),
        (PLAIN, {"vgpu_licences": vm.licence("Licensed (Expiry: N/A)")}, "pass", "N/A", ""),
        (PLAIN, {"vgpu_licences": vm.licence("Licensed (Expiry: Permanent)")}, "pass", "Permanent", ""),
        (PLAIN, {"vgpu_licences": vm.licence("Licensed (Expiry: 2026-12-31 9:5:7 GMT)")}, "fail",
            "expired: 0000:06:00.0", "reach its licence"),
        (PLAIN, {"vgpu_licences": vm.licence("Unlicensed (Unrestricted)")}, "fail", "Unlicensed (Unrestricted)",
            "grace period"),
        (PLAIN, {"vgpu_licences": vm.licence("Unlicensed (Restricted)"), "gridd": vm.gridd(log=FAILED)}, "fail",
            FAILED[:60], "slowed down"),
        (PLAIN, {"vgpu_licences": vm.licence("Unlicensed")}, "fail", "0000:06:00.0 Unlicensed", "slowed down"),
        (PLAIN, {"vgpu_licences": vm.licence() + vm.licence("Unlicensed", bus="00000000:07:00.0")}, "fail",
            "0000:07:00.0 Unlicensed", "slowed"),
        (PLAIN, {"vgpu_licences": vm.licence("")}, "fail", "no licensed product: 0000:06:00.0", "licensing portal"),
        (PLAIN, {"vgpu_licences": vm.licence(mode="Pass-Through")}, "fail", "0000:06:00.0 Pass-Through",
            "vgpu_guest.gpu"),
        (WHOLE, {"vgpu_licences": vm.licence(mode="Pass-Through")}, "pass", "Licensed", ""),
        (PROVIDER, {"vgpu_licences": vm.licence("Licensed (Expiry: N/A)", mode="Pass-Through")}, "pass", "Licensed",
            ""),
        (PLAIN, {"vgpu_licences": Output("", 127)}, "fail", "nvidia-smi is not installed", "nvidia_driver.loaded"),
        (PLAIN, {"vgpu_licences": Output("", 127), "container": "podman\n"}, "skip", "podman container", ""),
        (PLAIN, {"vgpu_licences": "NVIDIA-SMI has failed because it couldn't communicate with the driver\n"}, "fail",
            "NVIDIA-SMI has failed", "see"),
    ],
)  # fmt: skip
def test_licence(fragment: VgpuGuest, changed: dict[str, Output | str], status: str, found: str, fix: str) -> None:
    outcome = vm.ask(LICENSED, fragment, **changed)
    assert (outcome.status, found in outcome.found, fix in outcome.fix) == (status, True, True), outcome


def test_export() -> None:
    assert export(facts(gridd=vm.gridd(program=False))) is None
    assert export(facts(gridd=vm.gridd(config=False))) is None
    assert export(facts(gridd=vm.gridd())) == PLAIN
    assert export(facts(gridd=vm.gridd(*FULL_SETTINGS))) == FULL
    assert export(
        facts(gridd=vm.gridd("FeatureType=1", "ServerAddress=licence.example", "ServerPort=what", tokens=""))
    ) == VgpuGuest(licensing="server", server_address="licence.example")
    assert export(facts(gridd=vm.gridd("EnableUI=TRUE", "FeatureType=0", tokens=""))) == VgpuGuest(
        licensing="provider", enable_ui=True
    )
    assert export(facts(gridd=vm.gridd(tokens=vm.token_row(mode="600")))) == VgpuGuest(token_mode="0600")
    assert export(facts(gridd=vm.gridd("FeatureType=0"))) == PLAIN
