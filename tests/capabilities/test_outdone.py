"""What a file of the site decides after gpuprov's: verify names the file, and plan promises no change of it."""

from __future__ import annotations

import pytest

from gpuprov.spec.kernel import Kernel
from tests.capabilities.asking import ask

LIMITS = "file|/etc/security/limits.d/{}.conf\n* - memlock 64\n"
SERVICES = "file|/etc/systemd/system.conf.d/{}.conf\nline|DefaultLimitMEMLOCK=64K\nread|\n"
OPTION = "options ib_core a=2\nin /etc/modprobe.d/{}.conf:options ib_core a=2\n"
SYSCTL = "file|/etc/sysctl.d/{}.conf\nline|vm.swappiness=10\n"
GRUB = (
    "linux /vmlinuz root=/dev/sda1 iommu=pt\n"
    "later /etc/default/grub.d/90-gpuprov.cfg GRUB_CMDLINE_LINUX=iommu=pt\n"
    "later /etc/default/grub.d/{}.cfg GRUB_CMDLINE_LINUX=quiet\n"
)
LOCK = Kernel(limits={"memlock": "unlimited"})
ROWS = [
    ("kernel.module_options", Kernel(module_options={"ib_core": {"a": 1}}), {"modprobe_config": OPTION}, "a-site"),
    ("kernel.sysctl", Kernel(sysctl={"vm.swappiness": 60}), {"sysctl_at_boot": SYSCTL}, "10-site"),
    ("kernel.limits", LOCK, {"login_limits": LIMITS}, "10-site"),
    ("kernel.limits", LOCK, {"default_limits": "DefaultLimitMEMLOCK=65536\n", "limit_sources": SERVICES}, "10-site"),
    ("kernel.boot_entries", Kernel(command_line={"iommu": "pt"}), {"boot_entries": GRUB}, ""),
]


@pytest.mark.parametrize(("check", "spec", "facts", "earlier"), ROWS)
def test_no_change_is_promised(check: str, spec: Kernel, facts: dict[str, str], earlier: str) -> None:
    """A file before gpuprov's is outdone by that."""
    outcome = ask(check, spec, **{name: text.format("zz-site") for name, text in facts.items()})
    assert (outcome.status, outcome.changes) == ("fail", ()), outcome
    if earlier:
        outcome = ask(check, spec, **{name: text.format(earlier) for name, text in facts.items()})
        assert outcome.status == "fail"
        assert outcome.changes, outcome


def test_what_run_says_of_modules_a_boot_forgets() -> None:
    spec = Kernel(modules_load=("nvidia_uvm",))
    for folder, status in (("/run", "pass"), ("/etc", "fail")):
        text = f"blacklist nvidia_uvm\nin {folder}/modprobe.d/x.conf:blacklist nvidia_uvm\n"
        assert ask("kernel.modules_load", spec, modules_load="nvidia_uvm\n", modprobe_config=text).status == status
