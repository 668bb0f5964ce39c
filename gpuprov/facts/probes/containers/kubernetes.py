"""A Kubernetes node as seen on its host: kubelet, gpuprov's files, other managers of the GPUs, and the cluster's
view of it."""

import msgspec

from gpuprov.catalog.kubernetes import DRA_DRIVER, DRA_VALUES
from gpuprov.core import safe_parse
from gpuprov.facts.probes.base import Output, Probe
from gpuprov.facts.probes.host.system import ROOTS

DIRECTORY = "/etc/gpuprov/kubernetes"
# The kubelet as kubeadm, k3s, RKE2 and MicroK8s start it: https://docs.k3s.io/architecture,
# https://docs.rke2.io/architecture, https://microk8s.io/docs/configuring-services
UNITS = (
    *("kubelet.service", "k3s.service", "k3s-agent.service", "rke2-server.service", "rke2-agent.service"),
    "snap.microk8s.daemon-kubelite.service",
)
# The kubelet's own credentials: https://kubernetes.io/docs/reference/setup-tools/kubeadm/implementation-details/
KUBECONFIGS = (
    "/etc/kubernetes/kubelet.conf",
    "/var/lib/rancher/k3s/agent/kubelet.kubeconfig",
    "/var/lib/rancher/rke2/agent/kubelet.kubeconfig",
)
# Where the GPU operator's containers put the driver and the toolkit:
# https://github.com/NVIDIA/gpu-operator/blob/main/deployments/gpu-operator/values.yaml (driverInstallDir, installDir)
DRIVER_ROOT, TOOLKIT_ROOT = "/run/nvidia/driver", "/usr/local/nvidia/toolkit"
# Names of processes, which the kernel cuts after 15 letters: nvidia-mig-manager, nvidia-device-plugin (NVIDIA's and
# HAMi's), vGPUmonitor (HAMi's), gpushare-device-plugin-v2, gpu-kubelet-plugin (DRA), volcano-device-plugin,
# volcano-vgpu-device-plugin:
# https://github.com/Project-HAMi/volcano-vgpu-device-plugin/blob/main/docker/Dockerfile.ubuntu20.04,
# https://github.com/volcano-sh/devices.
DRA, VOLCANO = "gpu-kubelet-plu", ("volcano-device-", "volcano-vgpu-de")
MIG_MANAGER, PLUGIN, HAMI, GPUSHARE = "nvidia-mig-mana", "nvidia-device-p", "vGPUmonitor", "gpushare-device"
DRIVER, TOOLKIT = "driver", "toolkit"


class Service(msgspec.Struct, frozen=True):
    """A unit that runs a kubelet."""

    name: str
    active: str
    file: str


class Device(msgspec.Struct, frozen=True):
    """A device of a ResourceSlice of the DRA driver."""

    name: str
    # gpu, mig or vfio.
    kind: str
    uuid: str


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """The node."""

    # Units that run a kubelet.
    services: tuple[Service, ...] = ()
    # What a cluster has put on the host, `driver` or `toolkit`, and names of processes.
    managers: tuple[str, ...] = ()
    # `kubectl`, `kubeconfig`: program and credentials for queries, empty if absent.
    kubectl: str = ""
    kubeconfig: str = ""
    # The kubelet's name for the node.
    name: str = ""
    # `labels` and `allocatable`: the cluster's answer; None without an answer: then `complaint` is kubectl's error, if
    # it was run.
    labels: dict[str, str] | None = None
    allocatable: dict[str, str] | None = None
    complaint: str = ""
    kubelet: str = ""
    # Devices in the DRA driver's ResourceSlices of the newest generation; None if the cluster was not queried.
    slices: tuple[Device, ...] | None = None
    # kubectl's error, or what is missing.
    slices_complaint: str = ""

    @property
    def unasked(self) -> str:
        """Reason why the cluster was not queried; empty if it was."""
        if not self.kubeconfig:
            return f"no credentials of a kubelet on this host ({', '.join(KUBECONFIGS)})"
        return "" if self.kubectl else "kubectl is not installed on this host"


def parse_files(output: Output) -> dict[str, str]:
    files: dict[str, str] = {}
    name = ""
    for line in output.text.splitlines():
        if line.startswith("@file "):
            name = line.removeprefix("@file ")
            files[name] = ""
        elif name:
            files[name] += line[1:] + "\n"
    return files


def parse_slices(text: str) -> tuple[tuple[Device, ...] | None, str]:
    """Parse the list of a node's ResourceSlices: devices, and what is wrong with it."""
    # https://kubernetes.io/docs/reference/kubernetes-api/resource/resource-slice-v1/
    try:
        items = safe_parse.parse_json(text)["items"]
        specs = [item["spec"] for item in items if item["spec"]["driver"] == DRA_DRIVER]
        newest = max((int(spec["pool"]["generation"]) for spec in specs), default=0)
        current = [spec for spec in specs if int(spec["pool"]["generation"]) == newest]
        devices = [device for spec in current for device in spec.get("devices") or ()]
        total = int(current[0]["pool"]["resourceSliceCount"]) if current else 0
        parsed = tuple(
            Device(str(device["name"]), *(str(device["attributes"][key]["string"]) for key in ("type", "uuid")))
            for device in devices
        )
    except (ValueError, KeyError, AttributeError, TypeError):
        return None, " ".join(text.split())[:300] or "kubectl gave no answer"
    return parsed, f"{len(current)} of {total} slices of its pool are there" if len(current) != total else ""


def parse_node(output: Output) -> Node:
    text, marker, listed = output.text.partition("@slices\n")
    slices, slices_complaint = parse_slices(listed) if marker else (None, "")
    head, _, answer = text.partition("@node\n")
    rows = Output(head).rows()
    fields = {kind: values[-1] for kind, values in rows.items()}
    labels, allocatable, complaint, kubelet = None, None, "", ""
    if fields.get("kubectl") and fields.get("kubeconfig"):
        try:
            # metadata.labels {"nvidia.com/gpu.product": "NVIDIA-L4"}, status.allocatable {"nvidia.com/gpu": "1"}
            answer_data: safe_parse.Tree = safe_parse.parse_json(answer)
            labels = {str(key): str(value) for key, value in answer_data["metadata"].get("labels", {}).items()}
            kubelet = str(answer_data["status"].get("nodeInfo", {}).get("kubeletVersion", ""))
            allocatable = {str(key): str(value) for key, value in answer_data["status"].get("allocatable", {}).items()}
        except (ValueError, KeyError, AttributeError, TypeError):
            complaint = " ".join(answer.split())[:300] or "kubectl gave no answer"
    return Node(
        services=tuple(Service(*(line.split("|", 2) + ["", ""])[:3]) for line in rows.get("unit", ())),
        managers=tuple(dict.fromkeys(rows.get("manager", ()))),
        kubectl=fields.get("kubectl", ""),
        kubeconfig=fields.get("kubeconfig", ""),
        name=fields.get("name", ""),
        labels=labels,
        allocatable=allocatable,
        complaint=complaint,
        kubelet=kubelet,
        slices=slices,
        slices_complaint=slices_complaint,
    )


# The text of each file in gpuprov's folder, by name.
FILES = Probe(
    "kubernetes_files",
    f"""for f in {DIRECTORY}/*; do
  [ -f "$f" ] || continue
  echo "@file ${{f##*/}}"; sed 's/^/ /' "$f"; echo
done; true""",
    parse_files,
    f"head -n 100 {DIRECTORY}/*",
    own=True,
)

# Who it is by the kubelet's certificate, system:node:NAME:
# https://kubernetes.io/docs/reference/access-authn-authz/node/ --raw asks for the node alone, without a discovery of
# the whole API; a kubelet may list the slices of its own node only:
# https://github.com/kubernetes/kubernetes/blob/master/plugin/pkg/auth/authorizer/node/node_authorizer.go, and they are
# asked for where DRA's values are rendered. Two opening braces would be Ansible's own: the role runs this script too.
NODE = Probe(
    "kubernetes_node",
    f"""for u in {" ".join(UNITS)}; do
  s=$(systemctl show -p LoadState -p ActiveState -p UnitFileState "$u" 2>/dev/null | sort | sed 's/^[^=]*=//' |
    tr '\\n' '|')
  case $s in *"|loaded|"*) a=${{s%%|*}}; f=${{s#*|loaded|}}; echo "unit|$u|$a|${{f%|}}";; esac
done
while read -r d m r; do [ "$m" = {DRIVER_ROOT} ] && echo "manager|{DRIVER}"; done < /proc/self/mounts
[ -e {DRIVER_ROOT}/usr/bin/nvidia-smi ] && echo "manager|{DRIVER}"
[ -x {TOOLKIT_ROOT}/nvidia-container-runtime ] && echo "manager|{TOOLKIT}"
{ROOTS}roots '{"|".join((MIG_MANAGER, PLUGIN, HAMI, GPUSHARE, DRA, *VOLCANO))}' | while read -r d; do
  read -r c < "$d/comm" && echo "manager|$c"
done 2>/dev/null | sort -u
k=$(command -v kubectl) || for f in /var/lib/rancher/rke2/bin/kubectl /usr/local/bin/kubectl; do [ -x "$f" ] &&
  k=$f; done
c=""; for f in {" ".join(KUBECONFIGS)}; do [ -r "$f" ] && c=$f && break; done
[ -n "$c" ] || exit 0
p=$(sed -n 's/^ *client-certificate: *//p' "$c" | head -n 1)
n=$(openssl x509 -noout -subject -in "$p" 2>/dev/null | sed -n 's/.*system:node:\\([^,/ ]*\\).*/\\1/p')
[ -n "$n" ] || n=$(uname -n | tr A-Z a-z)
echo "kubeconfig|$c"; echo "name|$n"
[ -n "$k" ] || exit 0
echo "kubectl|$k"; echo @node
ask() {{ timeout 8 "$k" --kubeconfig="$c" --request-timeout=4s get --raw "$1"; }}
tell() {{ if o=$(ask "$1" 2>/dev/null); then printf '%s\\n' "$o"; else ask "$1" 2>&1; fi; }}
tell "/api/v1/nodes/$n"
[ -e {DIRECTORY}/{DRA_VALUES} ] || exit 0
echo @slices; tell "/apis/resource.k8s.io/v1/resourceslices?fieldSelector=spec.nodeName%3D$n"; true""",
    parse_node,
    "systemctl status kubelet; kubectl get node NAME -o yaml; mount | grep /run/nvidia; ls /usr/local/nvidia/toolkit",
)
