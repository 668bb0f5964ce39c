"""`kubernetes`: the needs of a GPU node in a cluster: device plugin, GPU operator, labels; rendered, and compared with
the host."""

from gpuprov.capabilities.base import LOADED, Capability
from gpuprov.capabilities.kubernetes import dra, node, now
from gpuprov.capabilities.kubernetes.desired import DESIRED, RESOURCES
from gpuprov.capabilities.kubernetes.fragment import Kubernetes
from gpuprov.capabilities.kubernetes.reading import export
from gpuprov.capabilities.kubernetes.rules import fleet_rules, rules
from gpuprov.capabilities.kubernetes.tasks import TASKS
from gpuprov.facts.probes.containers import kubernetes

CAPABILITY = Capability(
    name="kubernetes",
    summary="What a GPU node needs in Kubernetes: one device plugin and its sharing, GPU-operator values, labels, "
    "RuntimeClass",
    fragment=Kubernetes,
    checks=now.CHECKS + node.CHECKS + dra.CHECKS,
    rules=rules,
    fleet_rules=fleet_rules,
    export=export,
    export_probes=(kubernetes.FILES,),
    tasks=TASKS,
    desired=DESIRED,
    resources=RESOURCES,
    shown_by="tests/capabilities/test_kubernetes_host.py",
    presupposes={"allocatable": ("kubernetes.kubelet", "kubernetes.runtime", "mig.instances", *LOADED)},
)
