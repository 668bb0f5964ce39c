"""pcie: the machine can have what is asked for; IOMMU, ACS, registers and interrupts, now and after the next boot; what
a spec may say."""

from __future__ import annotations

from gpuprov.capabilities import pcie
from gpuprov.capabilities.base import Outcome
from gpuprov.capabilities.pcie.fragment import Pcie
from gpuprov.capabilities.rdma.fragment import Rdma
from gpuprov.catalog import pcie as catalogue
from gpuprov.catalog.pcie import POLICY
from gpuprov.host_code.at_boot.pcie import CONFIG
from gpuprov.spec.kernel import Kernel
from gpuprov.spec.model import Fragment, GpuSpec, HostSpec
from tests.capabilities.asking import CHECKS, facts, good, with_own_files
from tests.capabilities.contents_host import Also, unit
from tests.capabilities.pcie_host import CONTROL, GPU, HCA, LEFT, ON, RDMA, ROOT_PORT, said
from tests.rows import run_each

METAL, GUEST = "kind|none\nefi|1\nflag|0\n", "kind|kvm\nflag|1\n"
REDHAT = 'ID="rocky"\nVERSION_ID="9.4"\nID_LIKE="rhel centos fedora"\nPRETTY_NAME="Rocky Linux 9.4"\n'
PT = "ro quiet intel_iommu=on iommu=pt\n"
UNIT = "gpuprov-pcie.service"
TOPO = ("topo|/usr/sbin/rdma_topo", "topo_status|0", "topo_grub|same")
STALE = (TOPO[0], "topo_status|100", "topo_wrong|ACS for cx_nic 0000:18:00.0 has incorrect values", TOPO[2])
NEW = (*STALE[:3], "topo_grub|absent")


def ask(name: str, block: Pcie, text: str = "", *others: Fragment, gpu: str = "", **changed: str) -> Outcome:
    """What a check says of the host with a switch."""
    texts = {"machine": METAL, "rdma_devices": RDMA, "pcie": text or said(), "command_line": PT, **changed}
    check = CHECKS[f"pcie.{name}"]
    declared = {probe.name for probe in check.probes}
    given = {key: text for key, text in {**good(), **texts}.items() if key in declared}
    host = HostSpec(
        name="h",
        gpu=GpuSpec(model=gpu) if gpu else None,
        capabilities={type(one).__name__.lower(): one for one in others},
    )
    outcome = check.run(with_own_files(check, block, given, host))
    assert outcome.found
    assert outcome.status != "fail" or (outcome.expected and outcome.fix), outcome
    return outcome


LET = Pcie(iommu="passthrough")
IOMMU = [
    ("nothing asked", Pcie(), {}, "n/a", "not in the spec"),
    ("let through", LET, {}, "pass", "intel_iommu=on iommu=pt, 2 functions"),
    ("a container", LET, {"container": "podman\n"}, "skip", "podman container"),
    ("started without", LET, {"command_line": "ro quiet\n"}, "fail", "intel_iommu=missing iommu=missing"),
    ("started with another", LET, {"command_line": "intel_iommu=on iommu=pt iommu=nopt\n"}, "fail", "iommu=nopt"),
    ("parameters without effect", LET, {"pcie": said(domain="DMA-FQ")}, "fail", f"{GPU} is DMA-FQ"),
    ("a firmware without an IOMMU", LET, {"pcie": said(domain="")}, "fail", "no IOMMU groups"),
    ("a guest without an IOMMU", LET, {"pcie": said(domain=""), "machine": GUEST}, "skip", "no IOMMU of its own"),
    ("an old kernel", LET, {"pcie": said().replace("|7|identity|", "|7||")}, "pass", "does not report"),
    ("translated", Pcie(iommu="translated", cpu="amd"), {"command_line": "iommu=nopt\n", "pcie": said(domain="DMA")},
     "pass", "nopt"),
    ("not strict", Pcie(iommu="strict", cpu="arm"),
        {"command_line": "iommu.passthrough=0 iommu.strict=1\n", "pcie": said(domain="DMA-FQ")}, "fail", "is DMA-FQ"),
    ("off", Pcie(iommu="disabled", cpu="intel"), {"command_line": "intel_iommu=off\n", "pcie": said(domain="")}, "pass",
     "no IOMMU"),
    ("off and yet there", Pcie(iommu="disabled", cpu="intel"), {"command_line": "intel_iommu=off\n"}, "fail", f"{HCA}"),
]  # fmt: skip


@run_each(("name", "block", "changed", "status", "found"), IOMMU, ids=[row[0] for row in IOMMU])
def test_iommu(name: str, block: Pcie, changed: dict[str, str], status: str, found: str) -> None:
    outcome = ask("iommu", block, "", **changed)
    assert (outcome.status, found in outcome.found) == (status, True), outcome
    assert bool(outcome.reboot) == (name.startswith("started with"))


def test_the_iommu_of_a_grace_processor_is_found_by_the_gpu() -> None:
    assert ask("iommu", LET, gpu="GB200", command_line="iommu.passthrough=1\n").status == "pass"
    assert ask("iommu", LET, gpu="GB200").status == "fail"


OFF, COMPUTED = Pcie(acs="disabled"), Pcie(acs="rdma_topo")
BIG, BOTH = Pcie(max_read_request=4096), Pcie(max_read_request=4096, gpu_max_read_request=512)
RELAXED, STRICT, LOCAL = Pcie(relaxed_ordering="enabled"), Pcie(relaxed_ordering="disabled"), Pcie(affinity="local")
ROWS = [
    ("acs", Pcie(), said(acs=ON), {}, "n/a", "not in the spec"),
    ("acs", OFF, said(), {}, "pass", "off in 4 of 6 functions"),
    ("acs", OFF, said(acs=ON), {}, "fail", f"{LEFT} SrcValid+ ReqRedir+ CmpltRedir+ UpstreamFwd+"),
    ("acs", OFF, said(acs=0x80), {}, "fail", "0x0080"),
    ("acs", OFF, said(size=64), {}, "fail", "not readable"),
    ("acs", OFF, said(), {"machine": GUEST}, "fail", "a virtual machine (kvm)"),
    ("acs", OFF, "vendor|GenuineIntel\n", {}, "fail", "none on the PCI bus"),
    ("acs", COMPUTED, said(*TOPO, acs=ON), {}, "pass", "no defect"),
    ("acs", COMPUTED, said(), {}, "fail", "no rdma_topo"),
    ("acs", COMPUTED, said(*STALE), {}, "fail", "ACS for cx_nic"),
    ("acs", COMPUTED, said(*STALE, "topo_started|"), {}, "fail", "with its masks on the command line"),
    ("acs", COMPUTED, said(TOPO[0], "topo_status|124"), {}, "fail", "rdma_topo check ends with 124"),
    ("max_read_request", Pcie(), said(), {}, "n/a", "not in the spec"),
    ("max_read_request", BIG, said(request=0x5910), {}, "pass", "4096 bytes of 1 HCA"),
    ("max_read_request", BOTH, said(request=0x5910), {}, "pass", "4096 bytes of 1 HCA, 512 bytes of 1 GPU"),
    ("max_read_request", BIG, said(), {}, "fail", f"{HCA} has 512"),
    ("max_read_request", Pcie(gpu_max_read_request=4096), said(), {}, "fail", f"{GPU} has 512"),
    ("max_read_request", BIG, said(hca=False), {}, "fail", "no HCA"),
    ("max_read_request", BIG, said(size=64), {}, "fail", "not readable"),
    ("max_read_request", BIG, said(control=None), {}, "fail", f"no PCI Express capability: {HCA}"),
    ("relaxed_ordering", STRICT, said(control=None), {}, "fail", f"no PCI Express capability: {GPU} {HCA}"),
    ("max_read_request", BIG, said(), {"rdma_devices": RDMA.replace("0|||", "0|||bridge")}, "fail", "no HCA"),
    ("relaxed_ordering", Pcie(), said(), {}, "n/a", "not in the spec"),
    ("relaxed_ordering", RELAXED, said(), {}, "pass", "enabled in 2 functions"),
    ("relaxed_ordering", STRICT, said(), {}, "fail", f"enabled: {GPU} {HCA}"),
    ("relaxed_ordering", RELAXED, said(control=CONTROL & ~0x10), {}, "fail", f"disabled: {GPU} {HCA}"),
    ("relaxed_ordering", STRICT, said(size=64), {}, "fail", "not readable"),
    ("relaxed_ordering", STRICT, "vendor|GenuineIntel\n", {}, "fail", "no GPU and no HCA"),
    ("affinity", Pcie(), said(irq="0-31"), {}, "n/a", "not in the spec"),
    ("affinity", LOCAL, said(), {}, "pass", "2 interrupts of 1 HCA"),
    ("affinity", LOCAL, said(irq="0-31"), {}, "fail", f"{HCA} (node 0): interrupts 101 may be elsewhere"),
    ("affinity", LOCAL, said(irq=""), {}, "fail", "none"),
    ("affinity", LOCAL, said(hca=False), {}, "fail", "no HCA"),
    ("affinity", LOCAL, said(irq="0-31"), {"container": "podman\n"}, "skip", "podman container"),
    ("affinity", LOCAL, said("irqbalance|/usr/sbin/irqbalance --foreground "), {}, "fail",
     "irqbalance runs without gpuprov"),
    ("affinity", LOCAL, said(f"irqbalance|/usr/sbin/irqbalance --policyscript={POLICY} "), {}, "pass", "2 interrupts"),
    ("enabled", Pcie(), said(), {"contents": unit(UNIT, "inactive", "")}, "n/a", "no unit"),
    ("enabled", LET, said(), {"contents": unit(UNIT, "inactive", "")}, "n/a", "no unit"),
    ("enabled", Pcie(), said(), {"contents": unit(UNIT, "active", "enabled")}, "fail",
     "gpuprov-pcie.service is enabled"),
    ("active", Pcie(), said(), {"contents": unit(UNIT, "active", "disabled")}, "fail",
     "gpuprov-pcie.service is active"),
    ("files", Pcie(), said(), {"contents": Also(f"entry|f|644|0|0|{CONFIG}\n")}, "fail", f"{CONFIG}: there"),
    ("enabled", OFF, said(), {}, "pass", "gpuprov-pcie.service enabled"),
    ("enabled", OFF, said(), {"contents": unit(UNIT, "inactive", "")}, "fail", "gpuprov-pcie.service is not-found"),
    ("files", BOTH, said(), {"contents": Also(f"sum|0  {CONFIG}\n")}, "fail", f"{CONFIG}: another text"),
    ("enabled", OFF, said(), {"contents": unit(UNIT, "inactive", "disabled")}, "fail", "is disabled"),
    ("active", OFF, said(), {"contents": unit(UNIT, "failed", "enabled", "pcie: there is no HCA")}, "fail",
     '("pcie: there is'),
    ("active", OFF, said(), {}, "pass", "gpuprov-pcie.service active"),
    ("boot", COMPUTED, said(*TOPO), {}, "pass", "the masks of rdma_topo in"),
    ("boot", COMPUTED, said(*NEW), {}, "fail", "config-acs.cfg: absent"),
    ("hardware", OFF, said(), {}, "pass", "acs disabled"),
    ("hardware", OFF, said(), {"machine": GUEST}, "fail", "a virtual machine (kvm)"),
    ("hardware", OFF, said("other|10de:22b2"), {}, "fail", "root port of NVIDIA Grace: each port needs"),
    ("hardware", OFF, said("other|15b3:1023"), {}, "fail", "ConnectX-8"),
    ("hardware", OFF, said(driver="vfio-pci"), {}, "fail", f"{GPU} belong to vfio-pci"),
    ("hardware", OFF, said(driver="nvgrace_gpu_vfio_pci"), {}, "fail", f"{GPU} belong to nvgrace_gpu_vfio_pci"),
    ("hardware", OFF, said("lockdown|integrity"), {}, "fail", "lockdown integrity"),
    ("hardware", LOCAL, said("lockdown|integrity"), {}, "pass", "affinity local"),
    ("hardware", RELAXED, said("lockdown|none"), {}, "pass", "relaxed_ordering enabled"),
    ("hardware", RELAXED, said(port="8086:6f08"), {}, "fail", f"{ROOT_PORT} (Intel Broadwell Xeon)"),
    ("hardware", STRICT, said(port="8086:6f08"), {}, "pass", ""),
    ("hardware", BIG, said(hca=False), {}, "fail", "no HCA in"),
    ("hardware", LOCAL, said("irqbalance|/usr/sbin/irqbalance -l /opt/site.sh "), {}, "fail", "runs with /opt/site.sh"),
    ("hardware", COMPUTED, said(*TOPO), {}, "n/a", "not in the spec"),
    ("hardware", COMPUTED, said(), {}, "fail", "no rdma_topo"),
    ("hardware", COMPUTED, said(TOPO[0], "topo_wrong|No supported topology detected"), {}, "fail",
     "No supported topology"),
    ("hardware", COMPUTED, said(*TOPO), {"os_release": REDHAT}, "fail", "Red Hat family"),
    ("hardware", LET, said(), {}, "n/a", ""),
    ("hardware", Pcie(iommu="passthrough", cpu="amd"), said(), {}, "fail", "one of intel"),
    ("hardware", LET, said().replace("GenuineIntel", "arm"), {}, "fail", "one of arm"),
]  # fmt: skip


@run_each(("check", "block", "pcie", "changed", "status", "found"), ROWS)
def test_pcie(check: str, block: Pcie, pcie: str, changed: dict[str, str], status: str, found: str) -> None:
    outcome = ask(check, block, pcie, **changed)
    assert (outcome.status, found in outcome.found) == (status, True), outcome


def test_hcas_that_come_with_rdma_are_not_there_before_it() -> None:
    assert ask("hardware", BIG, said(hca=False), Rdma()).status == "pass"


def test_a_plan_names_what_changes() -> None:
    (change,) = ask("acs", OFF, said(acs=ON)).changes
    assert (change.name, change.before, change.after) == (f"{LEFT} ACSCtl", "001d", "0000")
    (change,) = ask("max_read_request", BIG).changes
    assert (change.name, change.before, change.after) == (f"{HCA} MaxReadReq", "512", "4096")
    (change,) = ask("acs", COMPUTED, said(*STALE)).changes
    assert (change.name, change.after) == ("ACS", "as rdma_topo computes it")
    assert not ask("acs", COMPUTED, said(*STALE, "topo_started|")).changes, "apply can do nothing about it"
    assert ask("affinity", LOCAL, said("irqbalance|/usr/sbin/irqbalance --foreground ")).changes == ()
    assert ask("acs", COMPUTED, said(*STALE)).reboot, "the masks are written, and the kernel has not read them"
    assert not ask("acs", COMPUTED, said(*NEW)).reboot


ALL = ("acs disabled", "max_read_request 512", "gpu_max_read_request 512", "relaxed_ordering enabled", "affinity local")
EVERY = Pcie(
    acs="disabled", max_read_request=512, gpu_max_read_request=512, relaxed_ordering="enabled", affinity="local"
)


def told(block: Pcie, gpu: str = "H100-SXM5-80GB") -> list[str]:
    host = HostSpec(name="h", gpu=GpuSpec(model=gpu), capabilities={"pcie": block})
    return [str(problem) for problem in pcie.rules(host, block)]


@run_each(
    ("block", "gpu", "said_"),
    [
        (Pcie(acs="disabled", max_read_request=4096), "H100-SXM5-80GB", ""),
        (Pcie(max_read_request=3000), "H100-SXM5-80GB", "pcie.max_read_request is 3000; allowed: 128, 256, 512"),
        (Pcie(gpu_max_read_request=64), "H100-SXM5-80GB", "pcie.gpu_max_read_request is 64"),
        (Pcie(iommu="disabled", cpu="arm"), "H100-SXM5-80GB", "no kernel parameter switches the IOMMU of an Arm"),
        (Pcie(iommu="disabled"), "NVIDIA GB200", "no kernel parameter"),
        (Pcie(iommu="disabled"), "H100-SXM5-80GB", ""),
        (Pcie(acs="disabled"), "GB300", "each port needs a mask of its own; acs: rdma_topo"),
        (Pcie(acs="rdma_topo"), "GB300", ""),
        (Pcie(acs="rdma_topo", iommu="disabled"), "B300", "only with an IOMMU"),
        (Pcie(), "H100-SXM5-80GB", "warning: pcie asks for nothing"),
    ],
)
def test_rules(block: Pcie, gpu: str, said_: str) -> None:
    found = told(block, gpu)
    assert [one for one in found if said_ in one] == found
    assert len(found) == bool(said_)


@run_each(
    ("block", "gpu", "words"),
    [
        (Pcie(iommu="passthrough"), "", {"intel_iommu": "on", "iommu": "pt"}),
        (Pcie(iommu="passthrough", cpu="amd"), "", {"iommu": "pt"}),
        (Pcie(iommu="passthrough"), "GH200-96GB", {"iommu.passthrough": "1"}),
        (Pcie(iommu="strict", cpu="intel"), "GH200-96GB", {"intel_iommu": "on", "iommu": "nopt", "iommu.strict": "1"}),
        (Pcie(iommu="disabled"), "", {"intel_iommu": "off", "amd_iommu": "off"}),
        (Pcie(acs="disabled"), "", None),
    ],
)
def test_what_is_asked_of_the_kernel(block: Pcie, gpu: str, words: dict[str, str] | None) -> None:
    host = HostSpec(name="h", gpu=GpuSpec(model=gpu) if gpu else None)
    assert pcie.contribute(host, block) == (Kernel(command_line=words) if words else None)


@run_each(
    ("text", "block"),
    [
        (said(), None),
        (said(config=ALL, unit=("loaded", "inactive", "disabled")), None),
        (said(config=ALL), EVERY),
        (said(config=("acs disabled", "max_read_request 4096"), acs=ON), None),
        (said(config=("acs disabled", "max_read_request 4096"), acs=ON, request=0x5910), Pcie(max_read_request=4096)),
        (said(config=("max_read_request many", "odd")), None),
    ],
)  # fmt: skip
def test_export(text: str, block: Pcie | None) -> None:
    assert pcie.export(facts(pcie=text, rdma_devices=RDMA)) == block


def test_registers_have_the_names_that_lspci_gives_them() -> None:
    assert catalogue.format_acs(0x1D) == "SrcValid+ ReqRedir+ CmpltRedir+ UpstreamFwd+"
    assert catalogue.format_acs(0) == ""
    assert catalogue.find_excluded_processor("8086:2f0e") == "Intel Haswell Xeon"
    assert catalogue.find_excluded_processor("8086:6f0f") == ""
    assert catalogue.find_excluded_processor("8086:{{ x }}") == ""
