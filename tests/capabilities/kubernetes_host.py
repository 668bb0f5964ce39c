"""The good host as a node of Kubernetes, told as its probes print it."""

from __future__ import annotations

import json
from collections.abc import Mapping

from gpuprov.capabilities.kubernetes import documents
from gpuprov.capabilities.kubernetes.fragment import Kubernetes
from gpuprov.spec.model import HostSpec

CONFIG = "nvidia.com/device-plugin.config"
KUBELET = "unit|kubelet.service|active|enabled\n"
ASKED = "kubeconfig|/etc/kubernetes/kubelet.conf\nname|gpu1\nkubectl|/usr/bin/kubectl\n"


def files(block: Kubernetes | None = None, host: HostSpec | None = None, **changed: str | None) -> str:
    """What the probe prints of the files of a spec; `changed` (device_plugin for device-plugin.yaml) have another text,
    or none."""
    made = documents.documents(host or HostSpec(name="gpu1"), block or Kubernetes())
    texts: dict[str, str | None] = {name: documents.text(value) for name, value in made.items()}
    texts |= {f"{name.replace('_', '-')}.yaml": text for name, text in changed.items()}
    lines = [
        [f"@file {name}", *(f" {line}" for line in text.splitlines()), ""]
        for name, text in texts.items()
        if text is not None
    ]
    return "".join(f"{line}\n" for block_lines in lines for line in block_lines)


def node(
    allocatable: Mapping[str, object] | None = None,
    *managers: str,
    unit: str = KUBELET,
    asked: str = ASKED,
    slices: str = "",
    kubelet: str = "v1.34.2+k3s1",
    **labels: str | None,
) -> str:
    """What the probe prints of a node. `labels` change those of the default spec (mps_capable:
    nvidia.com/mps.capable)."""
    named = {CONFIG: "default", **{f"nvidia.com/{key.replace('_', '.')}": value for key, value in labels.items()}}
    given = {key: value for key, value in named.items() if value is not None}
    counts = {key: str(value) for key, value in (allocatable or {"nvidia.com/gpu": 1}).items()}
    status = {"allocatable": {"cpu": "64", **counts}, "nodeInfo": {"kubeletVersion": kubelet}}
    answer = {"metadata": {"name": "gpu1", "labels": given}, "status": status}
    told = "".join(f"manager|{name}\n" for name in managers)
    listed = f"@slices\n{slices}\n" if slices else ""
    return f"{unit}{told}{asked}@node\n{json.dumps(answer)}\n{listed}"


def slices(*devices: tuple[str, str, str], generation: int = 1, count: int = 1, driver: str = "gpu.nvidia.com") -> str:
    """The cluster's answer about ResourceSlices of the node: name, type and UUID of each device, in the form of the
    DRA driver's documentation (site/content/docs/reference/resourceslice-attributes.md)."""
    made = [
        {"name": name, "attributes": {"type": {"string": kind}, "uuid": {"string": uuid},
         "driverVersion": {"version": "580.126.20"}}, "capacity": {"memory": {"value": "80Gi"}}}
        for name, kind, uuid in devices
    ]  # fmt: skip
    pool = {"name": "gpu1", "generation": generation, "resourceSliceCount": count}
    other = {
        "spec": {"driver": "compute-domain.nvidia.com", "pool": {**pool, "generation": 9}, "devices": [{"name": "c"}]}
    }
    item = {"kind": "ResourceSlice", "spec": {"driver": driver, "nodeName": "gpu1", "pool": pool, "devices": made}}
    return json.dumps({"kind": "ResourceSliceList", "items": [other, item]})


PROBES = {"kubernetes_files": "", "kubernetes_node": ""}
"""The good host is in no cluster yet, as simulated hosts are."""
