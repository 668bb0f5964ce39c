"""Manifest of a bundle: the first file of its archive."""

from typing import Annotated, Literal

import msgspec

from gpuprov import __version__
from gpuprov.host_code.pull.bundle import FORMAT
from gpuprov.spec.described import describe

Mode = Literal["report", "apply"]
TIME = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z$"


class Wheel(msgspec.Struct, frozen=True, kw_only=True):
    """A Python package that the host may need, in the folder `wheels` beside the bundles."""

    name: str
    sha256: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
    size: Annotated[int, msgspec.Meta(ge=1)]


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The bundle's host, its expiry, and the permitted actions. `identity`: all of it must be the host's."""

    gpuprov_bundle: Annotated[int, describe("Version of this format")] = FORMAT
    kind: Literal["pull"] = "pull"
    gpuprov_version: str = __version__
    host: str
    identity: Annotated[
        dict[str, str], describe("machine_id, product_uuid, product_serial of the host, or declared", min_length=1)
    ]
    serial: Annotated[int, describe("A host takes none that is lower than the one before", ge=1)]
    made_at: Annotated[str, describe("In UTC", pattern=TIME)]
    expires_at: Annotated[str, describe("In UTC; not accepted from then on", pattern=TIME)]
    mode: Annotated[Mode, describe("report: gpuprov verify; apply: apply, then verify")]
    reboot: Annotated[bool, describe("Whether an apply may be followed by one reboot")]
    services: Annotated[tuple[str, ...], describe("Units that may hold a GPU while the host is rebooted")]
    job: Annotated[str, describe("Digest of the job, the other file of the archive")]
    fleet: Annotated[str, describe("Digest of the fleet, as gpuprov fleet freeze writes it")]
    python: Annotated[tuple[int, int], describe("The oldest Python that gpuprov and ansible-core work with")]
    wheels: tuple[Wheel, ...]
