"""The values that a boot sets: files by their names, whatever their folders, and one of a name for all of that name."""

from __future__ import annotations

from pathlib import Path

from gpuprov.facts.probes.kernel.boot import SYSCTL_AT_BOOT
from tests.facts.probes import run_script


def test_files_in_the_order_of_a_boot(tmp_path: Path) -> None:
    files = {
        "usr/lib/sysctl.d/99-vendor.conf": "vm.swappiness = 1\n",
        "usr/lib/sysctl.d/50-default.conf": "vm.dirty_ratio=2\nnet.ipv4.conf.*.rp_filter = 2\n",
        "etc/sysctl.d/90-gpuprov.conf": "vm.swappiness = 3\nvm.dirty_ratio = 3\nkernel.numa_balancing=0\n",
        "etc/sysctl.d/50-default.conf": "# vm.dirty_ratio=4\n; kernel.panic=4\n",
        "usr/local/lib/sysctl.d/95-run.conf": "  -net/ipv4/conf/eth0.100/rp_filter = 0\nkernel.numa_balancing  =\t 1  "
        "\n-vm.nothing\n",
    }
    files["run/sysctl.d/98-gone-then.conf"] = "vm.swappiness = 9\n"
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    site = tmp_path / "etc/sysctl.conf"
    site.write_text("vm.dirty_ratio = 5\n")
    (tmp_path / "etc/sysctl.d/99-sysctl.conf").symlink_to(site)
    (tmp_path / "etc/sysctl.d/99-vendor.conf").symlink_to("/dev/null")
    script = SYSCTL_AT_BOOT.script
    for folder in ("/etc/", "/run/", "/usr/local/lib/", "/usr/lib/"):
        script = script.replace(f" {folder}sysctl.d", f" {tmp_path}{folder}sysctl.d")
    output = run_script(script, tmp_path, {})
    assert (output.status, output.error) == (0, "")
    values = SYSCTL_AT_BOOT.parse(output)
    assert {name: (value, path.removeprefix(str(tmp_path))) for name, (value, path) in values.items()} == {
        "vm.swappiness": ("3", "/etc/sysctl.d/90-gpuprov.conf"),
        "vm.dirty_ratio": ("5", "/etc/sysctl.d/99-sysctl.conf"),
        "kernel.numa_balancing": ("1", "/usr/local/lib/sysctl.d/95-run.conf"),
        "net.ipv4.conf.eth0/100.rp_filter": ("0", "/usr/local/lib/sysctl.d/95-run.conf"),
    }
