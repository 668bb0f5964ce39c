"""The `mig` block: which GPUs are in MIG mode, and how each is partitioned."""

from typing import Annotated, Any, Literal

import msgspec

from gpuprov.host_code.json_members import Json
from gpuprov.spec.described import describe
from gpuprov.spec.model import Fragment

Mode = Literal["enabled", "disabled"]
Count = Annotated[int, msgspec.Meta(ge=1, le=64)]
Profile = Annotated[str, describe("a MIG profile's name such as 3g.40gb, 1c.3g.40gb or 1g.10gb+me")]
Slices = Annotated[str, describe("the slices of a compute instance: 1c, 2c, ...", pattern=r"^[1-9][0-9]*c$")]
Selector = (
    Annotated[int, msgspec.Meta(ge=0, le=63)]
    | Annotated[str, describe('"0000:3b:00.0", "GPU-<uuid>" or a model of gpuprov catalog gpus', min_length=1)]
)


class GpuInstance(Fragment, frozen=True, omit_defaults=True):
    """GPU instances of one profile, if their placement or their compute instances matter."""

    profile: Profile
    placement: Annotated[int, describe("the first memory slice", ge=0, le=63)] | None = None
    count: Count = 1
    compute: dict[Slices, Count] = {}


ProfileCounts = dict[Profile, Count]
GpuInstances = tuple[GpuInstance, ...]
COUNTS_SCHEMA = {"type": "object", "additionalProperties": {"type": "integer", "minimum": 1, "maximum": 64}}
INSTANCES_SCHEMA = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {
            "profile": {"type": "string"},
            "placement": {"type": "integer", "minimum": 0, "maximum": 63},
            "count": {"type": "integer", "minimum": 1, "maximum": 64},
            "compute": COUNTS_SCHEMA,
        },
        "required": ["profile"],
        "additionalProperties": False,
    },
}
# ProfileCounts or GpuInstances. The rules tell them apart, so that a finding points to the faulty field inside.
Instances = Annotated[
    dict[str | int, Any] | tuple[Any, ...],
    describe(
        "how many MIG devices of which profile, or a list with profile, placement, count, compute",
        extra_json_schema={"allOf": [{"anyOf": [COUNTS_SCHEMA, INSTANCES_SCHEMA]}]},
    ),
]


class LayoutEntry(Fragment, frozen=True, omit_defaults=True):
    """The desired mode and instances of the GPUs in `gpus`."""

    gpus: Annotated[
        Literal["all"] | tuple[Selector, ...],
        describe(
            "which GPUs: all, or a list of PCI addresses, UUIDs, models, and indexes in the order of PCI addresses"
        ),
    ]
    mode: Annotated[Mode, describe("their MIG mode; disabled goes without instances")] = "enabled"
    instances: Instances = {}


class Mig(Fragment, frozen=True):
    """MIG mode, GPU instances and compute instances, applied through NVML and again at each boot.

    The layout is the spec's own, or one label of a mig-parted v1 file on the controller.
    """

    mode: Annotated[Mode, describe("without layout and config_file: the MIG mode of every GPU that has MIG")] = (
        "enabled"
    )
    layout: Annotated[
        tuple[LayoutEntry, ...],
        describe("entries in order: the last that names a GPU wins; a GPU that none names stays as it is"),
    ] = ()
    config_file: Annotated[
        str,
        describe(
            "the absolute path of a mig-parted v1 file on the controller, or of a ConfigMap with one, in place of "
            "layout",
            pattern=r"^(/.*)?$",
        ),
    ] = ""
    selected: Annotated[str, describe("the label in config_file; it may be left out where the file has one only")] = ""


def plain_layout(block: Mig) -> list[dict[str, Json]]:
    """Return the layout as plain dicts, as the program on the host takes it."""
    return [plain_entry(entry) for entry in block.layout]


def plain_entry(entry: LayoutEntry) -> dict[str, Json]:
    """Return an entry as a plain dict, without fields at their defaults."""
    values: dict[str, Json] = msgspec.json.decode(msgspec.json.encode(entry))
    return values
