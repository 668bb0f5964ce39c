"""verify finds each planted fault by name, and apply fixes what it may."""

from __future__ import annotations

import pytest

from tests.e2e.lab import SPEC, Lab, spec_of

pytestmark = pytest.mark.e2e
OTHER_MPS = """
other=$(apt-cache madison nvidia-cuda-mps | cut -d'|' -f2 | tr -d ' ' | sort -uV | tail -n 2 | head -n 1)
apt-get install -y --allow-downgrades --allow-change-held-packages nvidia-cuda-mps=$other
apt-mark hold nvidia-cuda-mps
"""
NO_BLACKLIST = "rm /etc/modprobe.d/gpuprov.conf /etc/modprobe.d/nvidia-blacklists-nouveau.conf"
NO_MODULE = (
    "rm /lib/modules/*/updates/dkms/nvidia-current.ko*; for kernel in $(ls /lib/modules); do depmod -a $kernel; done"
)
REBOOT = "mkdir -p /run/gpuprov/reboot-required.d; echo why > /run/gpuprov/reboot-required.d/kernel"
FAULTS: dict[str, tuple[str, str]] = {  # what is planted -> the check that finds it
    "not-held": ("apt-mark unhold libcuda1", "nvidia_driver.held"),
    "another-version": (OTHER_MPS, "nvidia_driver.packages"),
    "nouveau-not-kept-out": (NO_BLACKLIST, "nouveau.configured"),
    "no-autoinstall": ("touch /etc/dkms/no-autoinstall", "nvidia_driver.autobuild"),
    "module-gone": (NO_MODULE, "nvidia_driver.modules_built"),
    "persistenced-off": ("systemctl disable nvidia-persistenced", "persistence.enabled"),
    "reboot-waited-for": (REBOOT, "host.reboot_pending"),
}
ALONE = "another-version"
"""Planted after the others: what else fails of the driver is then called its consequence."""
UNDONE = "rm /etc/dkms/no-autoinstall /run/gpuprov/reboot-required.d/kernel"
"""Undoes those that apply is not asked to mend here."""


def test_faults_are_found_and_mended(lab: Lab, newest: str, versions: tuple[str, str]) -> None:
    machine = lab.simulated("fault", newest)
    folder = lab.inventory(SPEC, machine)
    for together in ([name for name in FAULTS if name != ALONE], [ALONE]):
        for name in together:
            machine.sh(f"exec >/dev/null 2>&1\n{FAULTS[name][0]}")
        ran = lab.run("verify", folder, "--json")
        failed = ran.failed()
        missed = [name for name in together if not failed.get(FAULTS[name][1], {}).get("fix")]
        assert (ran.code, missed) == (1, []), ran
    machine.sh(UNDONE)
    mended = lab.run("apply", folder, "--yes")
    assert mended.code == 0, mended
    machine.has_driver(versions[0])


def test_export_check_verify_round_trip(lab: Lab, newest: str, versions: tuple[str, str]) -> None:
    import yaml

    machine = lab.simulated("export", newest)
    exported = lab.run("export", lab.inventory(None, machine))
    assert exported.code == 0, exported
    written = lab.folder / "exported.yaml"
    written.write_text(exported.out)
    (host,) = yaml.safe_load(exported.out)["all"]["hosts"].values()
    assert host["gpuprov"]["nvidia_driver"] == {"version": versions[0], "kernel_modules": "proprietary"}
    assert host["gpuprov"]["persistence"] == {"mode": "daemon"}
    assert set(host["gpuprov"]) == {
        "gpu",
        "nouveau",
        "nvidia_driver",
        "persistence",
    }  # kernel: nouveau's share follows from nouveau
    assert lab.run("check", written).code == 0
    told = lab.run("verify", written)
    assert told.code == 0, told


def test_exported_spec_is_what_was_asked(lab: Lab, older: str, versions: tuple[str, str]) -> None:
    import yaml

    machine = lab.simulated("asked", older)
    (host,) = yaml.safe_load(lab.run("export", lab.inventory(None, machine)).out)["all"]["hosts"].values()
    asked = spec_of(versions[1])
    for name, block in asked.items():
        assert host["gpuprov"][name].items() >= block.items(), host
