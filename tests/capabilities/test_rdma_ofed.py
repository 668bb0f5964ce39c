"""DOCA-OFED: what each state of a host is answered with, and what a spec must not say."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Any

from gpuprov.capabilities.base import Outcome
from gpuprov.capabilities.gds.fragment import Gds
from gpuprov.capabilities.rdma.fragment import Rdma
from gpuprov.capabilities.rdma.ofed import checks as ofed
from gpuprov.capabilities.rdma.ofed.checks import rules
from gpuprov.capabilities.rdma.ofed.fragment import Ofed
from gpuprov.spec.model import HostSpec
from tests.capabilities import contexts
from tests.capabilities.asking import expect
from tests.capabilities.ofed_host import ABSENT, KERNEL, OTHER, ROCKY, UBUNTU, kernel, loaded, packages, said
from tests.rows import run_each

CHECKS = {check.id.removeprefix("rdma.ofed_"): check for check in ofed.CHECKS}
DOCA = Rdma(stack="doca-ofed")
INBOX = Rdma(stack="inbox")
SHA = "ab" * 32


def asking(**values: Any) -> Rdma:
    return Rdma(stack="doca-ofed", ofed=Ofed(**values))


def ask(name: str, block: Rdma, **changed: str) -> Outcome:
    texts = {"ofed": said(), "ofed_packages": packages(), "os_release": UBUNTU, **changed}
    return contexts.answer(f"rdma.ofed_{name}", contexts.spec(rdma=block), texts)


OWN_CORE = said(memory=(loaded("ib_core", own=True), loaded("mlx5_core"), loaded("mlx5_ib")))
OLDER = tuple(loaded(name, older=True) for name in ("ib_core", "mlx5_core", "mlx5_ib"))
ROWS = [
    ("release", DOCA, {}, "pass", "doca-ofed 25.10.OFED.25.10.1.7.1.1-1, OFED 25.10-1.7.1", ""),
    ("release", asking(version="25.10"), {}, "pass", "OFED 25.10-1.7.1", ""),
    ("release", asking(version="25.10-1.7.1"), {}, "pass", "", ""),
    ("release", asking(version="26.01"), {}, "fail", "OFED 25.10-1.7.1",
     "gpuprov apply, with the doca-host package of OFED 26.01"),
    ("release", asking(version="25.10-2.4.1"), {}, "fail", "OFED 25.10-1.7.1", ""),
    # DOCA from 3.6 on has no ofed_info: the package's version tells.
    ("release", asking(version="25.10"), {"ofed": said(info="")}, "pass", "OFED 25.10-1.7.1.1", ""),
    ("release", DOCA, {"ofed": ABSENT, "ofed_packages": "native|amd64\n"}, "fail", "doca-ofed is not installed",
     "gpuprov apply"),
    ("release", DOCA, {"ofed": said(info="MLNX_OFED_LINUX-24.10-2.1.8.0:"), "ofed_packages": packages("doca-ofed")},
     "fail",
     "OFED 24.10-2.1.8.0 without doca-ofed", "ofed_uninstall.sh --force, then gpuprov apply"),
    ("release", DOCA, {"ofed_packages": packages("iser-dkms") + "iF |iser-dkms|25.10|iser|all\n"}, "fail",
     "incomplete: iser-dkms",
     "dpkg --configure -a"),
    ("release", INBOX, {}, "n/a", "the stack is inbox", ""),
    ("held", DOCA, {}, "pass", "8 packages held", ""),
    ("held", DOCA, {"ofed_packages": packages(state="ii ")}, "fail", "not held: doca-ofed iser-dkms", "apt-mark hold"),
    ("held", asking(hold=False), {"ofed_packages": packages(state="ii ")}, "pass", "8 packages not held", ""),
    ("held", asking(hold=False), {}, "fail", "held: doca-ofed", "apt-mark unhold"),
    ("held", INBOX, {}, "n/a", "inbox", ""),
    ("loaded", DOCA, {}, "pass", "ib_core, mlx5_core, mlx5_ib of OFED", ""),
    ("loaded", DOCA, {"ofed": said(memory=())}, "fail", "none of them is loaded", "systemctl restart openibd"),
    ("loaded", DOCA, {"ofed": OWN_CORE}, "fail",
     "ib_core: the kernel's own, or of another OFED, beside OFED's mlx5_core mlx5_ib: symbols of two",
     f"OFED is not built for {KERNEL}: dkms autoinstall -k {KERNEL}"),
    ("loaded", DOCA, {"ofed": said(memory=OLDER)}, "fail",
     "ib_core mlx5_core mlx5_ib: the kernel's own, or of another OFED",
     "systemctl restart openibd (gpuprov apply does)"),
    ("loaded", DOCA, {"ofed": said("busy|nvme_rdma|2", "client|python3 (88)", memory=OLDER)}, "fail", "of another OFED",
     "or a reboot"),
    ("loaded", DOCA, {"container": "podman\n"}, "skip", "podman container", ""),
    ("loaded", INBOX, {}, "n/a", "inbox", ""),
    ("built", DOCA, {}, "pass", f"{KERNEL}, {OTHER}", ""),
    ("built", DOCA, {"ofed": said(kernels=(kernel(KERNEL), kernel(OTHER, own=True)))}, "fail",
     f"{OTHER} would load the kernel's own ib_core", "dkms autoinstall"),
    ("built", DOCA, {"ofed": said(kernels=(kernel(KERNEL), kernel(OTHER, none=True)))}, "fail",
     f"{OTHER} would load no ib_core",
     "headers"),
    ("built", DOCA, {"ofed": said(kernels=(kernel(KERNEL, built="mlnx-ofed-kernel iser"),))}, "fail",
     f"{KERNEL} has no isert srp", "make.log"),
    ("built", DOCA, {"ofed": said(kernels=(kernel(KERNEL, built=""),), dkms="")}, "pass", KERNEL, ""),
    ("built", DOCA, {"ofed": said(kernels=())}, "fail", "no kernel", "install a kernel"),
    ("built", INBOX, {}, "n/a", "inbox", ""),
    ("openibd", DOCA, {}, "pass", "skipped no module", ""),
    ("openibd", DOCA, {"ofed": said("skipped|mlx5_core", "skipped|ib_umad")}, "fail",
     "openibd skipped mlx5_core ib_umad, as not OFED's",
     "FORCE_MODE=yes in openib.conf would load the kernel's own"),
    ("openibd", INBOX, {}, "n/a", "inbox", ""),
    ("alone", DOCA, {}, "pass", "nothing that works against", ""),
    ("alone", DOCA, {"ofed": said(f"older|{KERNEL}|erdma")}, "fail", f"against another ib_core: erdma for {KERNEL}",
     "dkms install it anew"),
    ("alone", DOCA, {"ofed": said("mft|/etc/yum.repos.d/cuda-rhel9.repo [cuda]"),
     "ofed_packages": packages() + "ii |mft|4.34|mft|amd64\n"}, "fail",
     "cuda-rhel9.repo [cuda] also offers mft", "excludepkgs=mft*"),
    ("alone", DOCA, {"ofed": said("mft|/etc/yum.repos.d/cuda-rhel9.repo [cuda]"),
     "ofed_packages": packages() + "hi |mft|4.34|mft|amd64\n"}, "pass", "", ""),
    ("alone", DOCA, {"ofed": said("mft|/etc/yum.repos.d/cuda-rhel9.repo [cuda]")}, "pass", "", ""),
    ("alone", DOCA, {"ofed": said(pinned=False)}, "fail", "apt would take DOCA's dkms", "gpuprov apply"),
    ("alone", DOCA, {"ofed": said(pinned=False), "os_release": ROCKY.format("9.6", "9.6")}, "pass", "nothing", ""),
    ("alone", INBOX, {}, "fail", "doca-ofed mlnx-ofed-kernel-dkms is installed: modules and libraries of two stacks",
     "ofed_uninstall.sh --force, and a reboot"),
    ("alone", INBOX, {"ofed": ABSENT, "ofed_packages": packages(names=["rdma-core"])}, "pass", "no OFED beside", ""),
    ("alone", Rdma(fabric="erdma"), {}, "n/a", "the stack is erdma-vendor", ""),
    ("fits", DOCA, {}, "pass", "Ubuntu 24.04.3 LTS, OFED of any release", ""),
    ("fits", asking(version="25.10"), {"os_release": ROCKY.format("9.8", "9.8")}, "fail",
     "EL 9.8's kernel has another DPLL callback", "a newer DOCA-OFED"),
    ("fits", DOCA, {"os_release": ROCKY.format("9.8", "9.8")}, "fail", "OFED 25.10-1.7.1: EL 9.8", "EL 9.7"),
    ("fits", asking(version="26.01"), {"os_release": ROCKY.format("9.8", "9.8"), "ofed": ABSENT}, "pass",
     "Rocky Linux 9.8", ""),
    ("fits", asking(version="25.10"), {"os_release": ROCKY.format("9.7", "9.7")}, "pass", "Rocky Linux 9.7", ""),
    ("fits", asking(url="https://example.org/doca-host-3.2.1_rhel9.x86_64.rpm", sha256=SHA), {}, "fail",
     "rdma.ofed.url is https://example.org", "of this distribution"),
    ("fits", DOCA, {"os_release": "ID=arch\nPRETTY_NAME=Arch\n"}, "fail", "Arch", "stack: inbox"),
    ("fits", INBOX, {}, "n/a", "inbox", ""),
]  # fmt: skip


@run_each(("name", "block", "changed", "status", "found", "fix"), ROWS)
def test_answers(name: str, block: Rdma, changed: dict[str, str], status: str, found: str, fix: str) -> None:
    expect(ask(name, block, **changed), status, found, fix)


def test_openibd_is_not_restarted_under_what_uses_it() -> None:
    outcome = ask("loaded", DOCA, ofed=said("busy|nvidia_peermem|1", "client|ib_write_bw (7)", memory=OLDER))
    assert outcome.reboot == (
        "DOCA-OFED's modules are not loaded, and openibd cannot restart: nvidia_peermem is in use; "
        "RDMA devices are open in ib_write_bw (7)"
    )
    assert not ask("loaded", DOCA, ofed=said(memory=OLDER)).reboot
    outcome = ask("loaded", DOCA, ofed=said("uplink|bond0", "talks|bond0|7", memory=OLDER))
    assert (
        "the default route runs over bond0, which would go down; bond0 would go down, with 7 TCP connections over it"
        in outcome.reboot
    )


@run_each(
    ("block", "told"),
    [
        (DOCA, ""),
        (asking(version="25.10-1.7.1", url="https://mirror.example/doca-host_3.2.1_amd64.deb", sha256=SHA), ""),
        (asking(url="https://a.example/b.deb"),
         "rdma.ofed names a package without its sha256: whatever comes would be installed"),
        (asking(sha256=SHA), "rdma.ofed.sha256 without url or file"),
        (asking(url="https://a.example/b.deb", file="/x.deb", sha256=SHA), "rdma.ofed has both url and file"),
        (asking(file="/nowhere/doca-host.deb", sha256=SHA), "rdma.ofed.file /nowhere/doca-host.deb is not there"),
        (asking(file="/nowhere/doca-host.tgz", sha256=SHA),
         "rdma.ofed.file is /nowhere/doca-host.tgz; the doca-host package, .deb or .rpm"),
        (asking(openib_conf={"ONBOOT": False}), "rdma.ofed.openib_conf.ONBOOT is no: openibd loads nothing at boot"),
        (asking(openib_conf={"FORCE_MODE": True}), "warning: rdma.ofed.openib_conf.FORCE_MODE is yes"),
        (asking(openib_conf={"SRP_LOAD": "auto"}), "rdma.ofed.openib_conf.SRP_LOAD is auto; allowed: yes, no"),
        (asking(openib_conf={"SET_IPOIB_CM": "auto", "ONBOOT": True}), ""),
        (Rdma(stack="doca-ofed", ipoib=True, ofed=Ofed(openib_conf={"IPOIB_LOAD": False})),
         "IPOIB_LOAD is no, and rdma.ipoib is true"),
    ],
)  # fmt: skip
def test_what_a_spec_must_not_say(block: Rdma, told: str) -> None:
    found = [str(problem) for problem in rules(HostSpec(name="h"), block)]
    assert len(found) == bool(told), found
    assert told in (found or [""])[0]


def test_a_file_that_is_there(tmp_path: Path) -> None:
    file = tmp_path / "doca-host.deb"
    file.write_bytes(b"a package")
    block = asking(file=str(file), sha256=sha256(b"a package").hexdigest())
    assert not list(rules(HostSpec(name="h"), block))


def test_apply_builds_nvidia_fs_anew_where_the_spec_has_it() -> None:
    def fix(*names: str, **blocks: Any) -> str:
        texts = {
            "ofed": said(*(f"older|{KERNEL}|{name}" for name in names)),
            "ofed_packages": packages(),
            "os_release": UBUNTU,
        }
        return contexts.answer("rdma.ofed_alone", contexts.spec(rdma=DOCA, **blocks), texts).fix

    assert fix("nvidia_fs", gds=Gds()) == "gpuprov apply"
    assert "dkms install it anew" in fix("nvidia_fs")
    assert "dkms install it anew" in fix("nvidia_fs", "ko2iblnd", gds=Gds())
