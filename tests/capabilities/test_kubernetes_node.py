"""kubernetes on a host: kubelet and runtime, who else manages the GPUs, and what is judged before anything is changed."""

from __future__ import annotations

import pytest

from gpuprov.facts.probes.base import Output
from tests.capabilities import toolkit_host
from tests.capabilities.asking import H100
from tests.capabilities.kubernetes_rows import (
    MIG,
    MPS,
    NOT_FOUND,
    OPERATOR,
    SINGLE,
    UNASKED,
    Row,
    judge,
    managed,
    told,
)  # fmt: skip
from tests.capabilities.toolkit_host import containerd, crio, docker

KUBELET, ONE_MANAGER = "kubernetes.kubelet", "kubernetes.one_manager"
REPLICAS, KUBECTL, RUNTIME = "kubernetes.replicas", "kubernetes.kubectl", "kubernetes.runtime"
BY_CDI = {"device_plugin": {"device_list_strategy": ["cdi-cri"]}}
BY_MOUNTS = {"device_plugin": {"device_list_strategy": ["volume-mounts"]}}
V100 = H100.replace("0x2330", "0x1db1")
CDI_2 = (
    "version = 3\n[plugins.'io.containerd.grpc.v1.cri']\nstream_server_port = '0'\n"
    "[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.nvidia.options]\n"
    "BinaryName = '/usr/bin/nvidia-container-runtime'\n"
)
ACCEPT = "accept-nvidia-visible-devices"


def engines(*texts: str) -> dict[str, Output | str]:
    """These engines and no other."""
    return {"container_engines": toolkit_host.CLOCK + "".join(texts)}


def config(*lines: str) -> dict[str, Output | str]:
    """These settings of the runtime."""
    return {"container_toolkit": toolkit_host.toolkit(config="\n".join(f" {line}" for line in lines))}


ROWS = [
    Row("the kubelet", KUBELET, {}, {}, {}, "pass", "kubelet.service active"),
    Row("no kubelet", KUBELET, {}, {}, told(unit=""), "skip", "no kubelet on this host"),
    Row("a dead kubelet", KUBELET, {}, {}, told(unit="unit|kubelet.service|failed|enabled\n"), "fail", "failed",
        "journalctl -u kubelet.service", "service kubelet.service: failed -> active"),
    Row("not joined", KUBELET, {}, {}, told(unit="unit|kubelet.service|activating|enabled\n", asked=UNASKED), "skip",
        "kubelet.service is activating: the node has not joined"),
    Row("only until the next boot", KUBELET, {}, {}, told(unit="unit|kubelet.service|active|disabled\n"), "fail", "is disabled",
        "systemctl enable"),
    Row("k3s", KUBELET, {}, {}, told(unit="unit|k3s-agent.service|active|enabled\n"), "pass", "k3s-agent.service"),
    Row("nobody else", ONE_MANAGER, {}, {}, managed("nvidia-device-p"), "pass"),
    Row("the operator's driver", ONE_MANAGER, {}, {}, managed("driver"), "fail", "/run/nvidia/driver",
        "driver.enabled=false"),
    Row("as asked for", ONE_MANAGER, {"gpu_operator": {"enabled": True, "driver": True}}, {}, managed("driver"), "pass"),
    Row("the operator's toolkit", ONE_MANAGER, OPERATOR, {}, managed("toolkit"), "fail",
        "/usr/local/nvidia/toolkit", "toolkit.enabled=false"),
    Row("the operator's MIG manager", ONE_MANAGER, SINGLE, MIG, managed("nvidia-mig-mana"), "fail",
        "nvidia-mig-manager", "migManager.enabled=false"),
    Row("a MIG manager on a host without mig", ONE_MANAGER, {}, {}, managed("nvidia-mig-mana"), "pass"),
    Row("gpushare's plugin too", ONE_MANAGER, {}, {}, managed("gpushare-device"), "fail",
        "gpushare-device", "DaemonSet"),
    Row("NVIDIA's beside gpushare", ONE_MANAGER, {"plugin": "gpushare"}, {}, managed("nvidia-device-p"), "fail", "nvidia-device-p"),
    Row("HAMi's", ONE_MANAGER, {"plugin": "hami"}, {}, managed("nvidia-device-p", "vGPUmonitor"), "pass"),
    Row("the runtime", RUNTIME, {}, {}, {}, "pass", "runtime nvidia in containerd, crio"),
    Row("cri-o", RUNTIME, BY_CDI, {}, engines(crio()), "pass", "in crio, GPUs by cdi-cri"),
    Row("no kubelet, no engine", RUNTIME, {}, {}, told(unit=""), "skip", "no kubelet on this host"),
    Row("docker only", RUNTIME, {}, {}, engines(docker()), "skip", "neither containerd nor cri-o"),
    Row("containerd lost it", RUNTIME, {}, {}, engines(containerd(drop_in="")), "fail",
        "containerd has no runtime nvidia", "container_toolkit: {runtimes: [containerd]}"),
    Row("containerd is broken", RUNTIME, {}, {}, engines(containerd(dump=None)), "fail",
        "does not understand its configuration"),
    Row("a stopped one beside a live one", RUNTIME, {}, {}, engines(containerd(drop_in="", active="inactive"),
        crio()), "pass", "in crio"),
    Row("CDI with an old containerd", RUNTIME, BY_CDI, {}, engines(containerd()), "fail",
        "containerd 1.6.20 knows no CDI", "[envvar]"),
    Row("CDI off", RUNTIME, BY_CDI, {}, engines(containerd(version="1.7.27", drop_in=CDI_2, dump=CDI_2)), "fail",
        "CDI is off in containerd"),
    Row("CDI by itself", RUNTIME, BY_CDI, {}, engines(containerd(version="2.1.4", drop_in=CDI_2, dump=CDI_2)),
        "pass"),
    Row("volume mounts off", RUNTIME, BY_MOUNTS, {}, {}, "fail", f"{ACCEPT}-as-volume-mounts is not true", "cdi-cri"),
    Row("volume mounts", RUNTIME, BY_MOUNTS, {}, config(f"{ACCEPT}-as-volume-mounts = true"), "pass"),
    Row("environment off", RUNTIME, {}, {}, config(f"{ACCEPT}-envvar-when-unprivileged = false"), "fail",
        "is false in /etc/nvidia-container", "volume-mounts"),
    Row("the operator's toolkit registers", RUNTIME, {"gpu_operator": {"enabled": True, "toolkit": True}}, {}, engines(),
        "n/a", "the operator"),
    Row("no MPS", REPLICAS, {}, {}, {}, "n/a"),
    Row("MPS", REPLICAS, MPS, {}, {}, "pass", "20 of at most 48"),
    Row("MPS on a V100", REPLICAS, MPS, {}, {"nvidia_functions": H100 + V100}, "fail",
        "20: the device plugin's limit for V100-SXM2", "16 or fewer"),
    Row("the site labels", KUBECTL, {}, {}, told(asked=UNASKED), "n/a", "the site"),
    Row("can label", KUBECTL, {"label_node": True}, {}, {}, "pass", "/usr/bin/kubectl, as gpu1"),
    Row("cannot label", KUBECTL, {"label_node": True}, {}, told(asked=UNASKED), "fail", "no credentials", "label_node: false"),
    Row("may not ask", KUBECTL, {"label_node": True}, {}, {"kubernetes_node": NOT_FOUND}, "fail", "not found",
        "kubectl --kubeconfig=/etc/"),
]  # fmt: skip


@pytest.mark.parametrize("row", [pytest.param(row, id=f"{row.check}: {row.name}") for row in ROWS])
def test_kubernetes(row: Row) -> None:
    judge(row)
