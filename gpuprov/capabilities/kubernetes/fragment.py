"""The `kubernetes` block: one strategy for a node, in the terms of the charts that it is for."""

from typing import Annotated, Literal

import msgspec

from gpuprov.spec.described import describe
from gpuprov.spec.model import Fragment

Word = Annotated[str, describe("a label's value", pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$")]
LabelValue = Annotated[str, describe("a label's value", pattern=r"^([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?$")]
LabelKey = Annotated[
    str,
    describe(
        "a label's key, PREFIX/NAME or NAME",
        pattern=r"^([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$",
    ),
]
DeviceList = Literal["envvar", "volume-mounts", "cdi-annotations", "cdi-cri"]


class SharedResource(Fragment, frozen=True):
    """One resource of the node, advertised several times."""

    replicas: Annotated[int, describe("how often each device of the resource is advertised, 2 or more")]
    name: Annotated[
        str,
        describe(
            "nvidia.com/gpu, or with mig_strategy mixed nvidia.com/mig-PROFILE (a + in it is a dot)",
            pattern=r"^nvidia\.com/(gpu|mig-[0-9a-z][0-9a-z.-]*)$",
        ),
    ] = "nvidia.com/gpu"
    rename: Annotated[str, describe("the plugin knows NAME.shared only, which rename_by_default gives")] = ""
    devices: Annotated[
        Literal["all"] | int | tuple[int | str, ...], describe("the plugin shares all devices or none")
    ] = "all"


class TimeSlicing(Fragment, frozen=True):
    """Pods take turns on a GPU, without memory limits between them."""

    ONE_OF = ("resources",)

    rename_by_default: Annotated[bool, describe("advertise NAME.shared instead of NAME")] = False
    fail_requests_greater_than_one: Annotated[
        bool, describe("refuse a pod that asks for more than one share, which gives it no more time")
    ] = False
    resources: Annotated[tuple[SharedResource, ...], describe("what is shared; none: no time slicing")] = ()


class MpsSharing(Fragment, frozen=True):
    """Pods run on a GPU at once through the device plugin's own MPS daemon, each with an equal part of memory and
    threads."""

    ONE_OF = ("resources",)

    rename_by_default: Annotated[bool, describe("advertise NAME.shared instead of NAME")] = False
    fail_requests_greater_than_one: Annotated[
        bool, describe("refuse a pod that asks for more than one share; plugins before 0.20 always do")
    ] = True
    resources: Annotated[
        tuple[SharedResource, ...], describe("what is shared (nvidia.com/gpu only); none: no MPS")
    ] = ()


class Sharing(Fragment, frozen=True):
    """GPU sharing by the plugin: one method for the whole node, or none."""

    time_slicing: TimeSlicing = TimeSlicing()
    mps: MpsSharing = MpsSharing()


class PluginConfig(Fragment, frozen=True):
    """A configuration of NVIDIA's device plugin, as in its ConfigMap."""

    mig_strategy: Annotated[
        Literal["none", "single", "mixed"],
        describe(
            "how MIG devices are offered. single: those of one profile as nvidia.com/gpu; mixed: each profile"
            " as nvidia.com/mig-PROFILE"
        ),
    ] = "none"
    device_list_strategy: Annotated[
        tuple[DeviceList, ...],
        describe(
            "how the runtime learns which GPUs a pod has (envvar, volume-mounts, cdi-annotations, cdi-cri)",
            min_length=1,
        ),
    ] = ("envvar",)
    device_id_strategy: Annotated[Literal["uuid", "index"], describe("by what GPUs are named to the runtime")] = "uuid"
    fail_on_init_error: Annotated[bool, describe("the plugin ends on a node without usable GPUs; false: it waits")] = (
        True
    )
    pass_device_specs: Annotated[bool, describe("also name the device files to the kubelet (for its CPU manager)")] = (
        False
    )
    sharing: Sharing = Sharing()


class DevicePlugin(PluginConfig, frozen=True):
    """The node's own configuration of NVIDIA's device plugin."""

    config: Annotated[
        Word,
        describe(
            "its name in the ConfigMap, and the value of nvidia.com/device-plugin.config; with configs, the one of "
            "them that the node has"
        ),
    ] = "default"


class GpuOperator(Fragment, frozen=True):
    """Values for the GPU operator's chart. The operator must not install what the host already provides."""

    WHEN_PRESENT = {"enabled": True}

    enabled: Annotated[
        bool, describe("render values for the operator's chart, as a gpu_operator that is there does")
    ] = False
    driver: Annotated[bool, describe("the operator brings the driver, in a container")] = False
    toolkit: Annotated[bool, describe("the operator brings the container toolkit")] = False
    mig_manager: Annotated[
        bool, describe("the operator's MIG manager runs too; beside `mig` it knows that layout and no other")
    ] = False
    dcgm_exporter: Annotated[bool, describe("the operator's dcgm-exporter, with its own engine")] = False


class Hami(Fragment, frozen=True):
    """Values for HAMi's chart."""

    split_count: Annotated[int, describe("at most so many pods on one GPU", ge=1, le=1000)] = 10
    memory_scaling: Annotated[float, describe("over 1: more GPU memory is promised than there is", gt=0, le=100)] = 1.0
    core_scaling: Annotated[float, describe("over 1: more compute is promised than there is", gt=0, le=100)] = 1.0
    mig_strategy: Annotated[Literal["none", "mixed"], describe("mixed: MIG devices of the host are given out")] = "none"
    mode: Annotated[
        Literal["hami-core", "mig"],
        describe("hami-core: limits inside the pod; mig: HAMi makes MIG instances itself on this node"),
    ] = "hami-core"


class Gpushare(Fragment, frozen=True):
    """Values for the chart of Alibaba's gpushare."""

    master_count: Annotated[int, describe("control-plane nodes, whose scheduler gets the extender", ge=1, le=99)] = 3


class Dra(Fragment, frozen=True):
    """Values for the chart of the DRA driver for NVIDIA GPUs."""

    compute_domains: Annotated[
        bool, describe("also domains of multi-node NVLink, whose IMEX daemons the driver runs (GB200 and newer)")
    ] = False
    feature_gates: Annotated[
        dict[Annotated[str, describe("a feature gate", pattern=r"^[A-Z][A-Za-z0-9]{1,62}$")], bool],
        describe("the chart's featureGates, such as DynamicMIG"),
    ] = {}


class Kubernetes(Fragment, frozen=True):
    """The needs of a GPU node in Kubernetes, rendered to /etc/gpuprov/kubernetes and compared with the host. One
    strategy.

    With label_node the node is labelled by kubectl, with the kubelet's own credentials. Nothing else in the cluster is
    changed.
    """

    IMPLIES = {"hami": ("plugin", "hami"), "gpushare": ("plugin", "gpushare"), "dra": ("allocation", "dra")}

    allocation: Annotated[
        Literal["device-plugin", "dra"],
        describe(
            "how pods get GPUs: counted by a device plugin, or described in ResourceSlices by the DRA driver, "
            "which takes the plugin's place; without it, what the block dra says"
        ),
    ] = "device-plugin"
    plugin: Annotated[
        Literal["nvidia", "hami", "gpushare"],
        describe("the one device plugin of the node; without it, what the block hami or gpushare says, else nvidia"),
    ] = "nvidia"
    node: Annotated[
        str,
        describe(
            "the node's name in the cluster; empty: the host's own",
            pattern=r"^([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?)?$",
        ),
    ] = ""
    labels: Annotated[
        dict[LabelKey, LabelValue], describe("more labels of the node, beside those that follow from the rest")
    ] = {}
    label_node: Annotated[
        bool, describe("set the labels with kubectl and the kubelet's own credentials; false: the site sets them")
    ] = False
    device_plugin: DevicePlugin = DevicePlugin()
    configs: Annotated[
        dict[Word, PluginConfig],
        describe(
            "all configurations of the cluster's one ConfigMap by name, the same for every node; "
            "device_plugin.config says which one a node has"
        ),
    ] = {}
    gpu_operator: GpuOperator = GpuOperator()
    hami: Hami = Hami()
    gpushare: Gpushare = Gpushare()
    dra: Dra = Dra()


def get_strategy(block: Kubernetes) -> str:
    """Return what gives out the node's GPUs: a device plugin's name, or dra."""
    return "dra" if block.allocation == "dra" else block.plugin


def get_plugin(block: Kubernetes) -> DevicePlugin:
    """Return the node's configuration of the device plugin: its own, or the one that it has of the cluster's."""
    name = block.device_plugin.config
    chosen = block.configs.get(name)
    return block.device_plugin if chosen is None else DevicePlugin(**msgspec.structs.asdict(chosen), config=name)
