"""Outputs of real hosts that are well show no symptom, whole and as they come through a pipe."""

from __future__ import annotations

import io
from pathlib import Path

from gpuprov.explain.messages import symptoms_in
from gpuprov.facts.captures import read
from tests.real.corpus import WHOLE, Capture, captures

TELLING = frozenset(
    """\
a100-pcie-mig-lxd
arch-595-mismatch
azure-fabric-insufficient
bazzite-firmware-missing
bumblebee-off-the-bus
container-driver-not-loaded
cuda-8-nvcc-envs
dcgm-159-nvswitch
dcgm-210-nscq
debian-headers-missing
debian11-container
debian12-535-container-cli
debian12-machine
debian12-machine-later
debian13-machine
dkms-470-bad-kernel
dkms-535-killed
dkms-diff-i915
dkms-no-gxx-el9
docker-registered-not-default
docker2-384-dpkg
efa-fi-info-61
efa-fork-ubuntu2204
efa-memlock
efa-no-infiniband-in-container
efa-provider-empty-list
fedora27-390-mismatch
fedora27-kernel-source
fedora32-module-not-found
fedora36-open-no-headers
fm-510-geforce-rocky86
fm-nvlink5-no-umad
gcp-smi-failed-kernel-upgrade
gdrdrv-unregistered
gpud-ibpanic
gridd-token-not-decoded
gt540m-rev-ff
gt650m-rev-ff
gtx1650-460-torch
h100-power-brake-535
l40s-off-the-bus
libnvidia-container-130-nscq
lost-gpu
nccl-completion-12-roce
nccl-error-12-old
nccl-modify-qp-timeout
nccl-no-verbs-container
nouveau-owns-v100
p100-595-legacy
p4-open-580
p4000-inforom
p5en-ofi-sixteen-nics
popos-390-unsupported-headers
popos-515-container-mismatch
rhel8-no-kmod-for-kernel
rhel9-repoquery-kmod
rocky10-580-filtered
row-remap-xid63
rtx3090-525-error-804
rtx4090-fabricmanager-nothing-to-do
rtx5070ti-requires-reset
rxe0-gl8
slurm-appliance-535-over-530
smi-failed-440
stackhpc-dkms-too-old
sxm-four-power-595
talos-connectx4-modules
tinygrad-570-nvml-mismatch
tkg-455-too-old
tkg-465-sys-close
tkg-modinfo-not-found
ubuntu1604-367-mismatch
uccl-modify-qp-rtr
vgpu-570-host-guest-mismatch
void-570-build-failed
xanmod-autoinstall-failed
xid13-old-format
xid31-old-format
xid9-nouveau-era
zen-525-headers
""".split()
)
"""Captures of something that failed, judged by a person: each has lines that say so. Every other one is of a host that
is well, or of a failure that its output does not name."""
REAL = Path(__file__).parents[1] / "real"
HEALTHY = [capture for capture in captures() if capture.name not in TELLING]


def test_most_captures_are_of_hosts_that_are_well() -> None:
    assert len(HEALTHY) >= 250
    assert {capture.name for capture in captures()} >= TELLING


def outputs(capture: Capture) -> dict[Path, bytes]:
    """What programs printed, by file; of a whole host's capture as its probes printed it, one after another."""
    paths = sorted(path for path in (REAL / capture.name).iterdir() if path.suffix != ".yaml")
    return {path: shown(path) if path.name == WHOLE else path.read_bytes() for path in paths}


def shown(path: Path) -> bytes:
    (record,) = read(path)
    return "\n".join(output.text for output in record.outputs.values()).encode()


def test_the_output_of_a_host_that_is_well_is_silent() -> None:
    for path, text in (pair for capture in HEALTHY for pair in outputs(capture).items()):
        assert [one.symptom.key for one in symptoms_in(io.BytesIO(text))] == [], path


def test_all_of_them_together_as_one_log_are_silent() -> None:
    whole = b"\n".join(text for capture in HEALTHY for text in outputs(capture).values())
    assert len(whole) > 200_000
    assert [(one.symptom.key, one.line) for one in symptoms_in(io.BytesIO(whole))] == []
