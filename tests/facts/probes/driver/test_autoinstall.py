"""What keeps DKMS from building for a new kernel: the script itself, over files."""

from __future__ import annotations

import subprocess
from pathlib import Path

from gpuprov.facts.probes.base import Output
from gpuprov.facts.probes.driver.dkms_logs import NO_AUTOINSTALL


def switched_off(root: Path) -> list[str]:
    """Run the script over files below a folder, with a systemctl that knows no dkms.service."""
    script = NO_AUTOINSTALL.script
    for folder in ("/etc/", "/var/lib/dkms", "/usr/lib/kernel", "/usr/src"):
        script = script.replace(folder, f"{root}{folder}")
    script = f"systemctl() {{ echo disabled; }}\n{script.replace('case $f in /usr/*)', 'case $f in */usr/*)')}"
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
    return [each.message.replace(str(root), "") for each in NO_AUTOINSTALL.parse(Output(done.stdout))]


def write(path: Path, text: str, mode: int = 0o755) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)


def test_settings_and_hooks(tmp_path: Path) -> None:
    settings, hook = "/var/lib/dkms/nvidia/580.95.05/source/dkms.conf", "/etc/kernel/postinst.d/dkms"
    plugin, mask = "/usr/lib/kernel/install.d/40-dkms.install", "/etc/kernel/install.d/40-dkms.install"
    at = {path: Path(f"{tmp_path}{path}") for path in (settings, hook, plugin, mask)}
    write(at[settings], 'PACKAGE_NAME="nvidia"\nAUTOINSTALL="yes"\n')
    write(at[hook], "")
    assert switched_off(tmp_path) == []
    at[hook].chmod(0o644)
    assert switched_off(tmp_path) == [f"{hook} is not executable"]
    write(at[plugin], "")
    assert switched_off(tmp_path) == []
    at[mask].parent.mkdir(parents=True)
    at[mask].symlink_to("/dev/null")
    assert switched_off(tmp_path) == [f"{hook} is not executable; {mask} masks that of dkms"]
    at[hook].chmod(0o755)
    write(Path(f"{tmp_path}/etc/dkms/nvidia.conf"), "AUTOINSTALL='no'\n")
    assert switched_off(tmp_path) == ["/etc/dkms/nvidia.conf has AUTOINSTALL=no"]
    Path(f"{tmp_path}/etc/dkms/nvidia.conf").unlink()
    write(at[settings], "PACKAGE_NAME=nvidia\n")
    write(Path(f"{tmp_path}/etc/dkms/no-autoinstall"), "")
    assert switched_off(tmp_path) == ["/etc/dkms/no-autoinstall exists", f"{settings} has no AUTOINSTALL"]


def test_sources_that_dkms_does_not_know_or_find(tmp_path: Path) -> None:
    """Who takes /var/lib/dkms away, as some advise against failed builds, has no driver for the next kernel."""
    sources = tmp_path / "usr/src/nvidia-580.95.05"
    write(sources / "dkms.conf", 'PACKAGE_NAME="nvidia"\nAUTOINSTALL="yes"\n')
    write(tmp_path / "usr/src/nvidia-fs-2.25.7/dkms.conf", "PACKAGE_NAME=nvidia-fs\n")
    told = "DKMS does not know the driver's sources in /usr/src/nvidia-580.95.05: /var/lib/dkms has nothing of them"
    assert switched_off(tmp_path) == [told]
    link = tmp_path / "var/lib/dkms/nvidia/580.95.05/source"
    link.parent.mkdir(parents=True)
    link.symlink_to(sources)
    assert switched_off(tmp_path) == []
    sources.rename(tmp_path / "gone")
    told = "/var/lib/dkms/nvidia/580.95.05/source leads to no dkms.conf: the driver's sources are gone"
    assert switched_off(tmp_path) == [told]
