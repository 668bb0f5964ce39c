"""The `vgpu_guest` block, and the lines of gridd.conf that follow from it."""

from typing import Annotated, Literal

from gpuprov.catalog import vgpu as catalogue
from gpuprov.spec.described import describe
from gpuprov.spec.model import Fragment

Address = Annotated[str, describe("a host name or an IP address, or nothing", pattern=r"^[A-Za-z0-9._:\[\]-]*$")]
Folder = Annotated[str, describe("a folder's absolute path", pattern=r"^/[A-Za-z0-9._/-]*[A-Za-z0-9]$")]
Port = Annotated[int, describe("a TCP port", ge=1, le=65535)]


class VgpuGuest(Fragment, frozen=True):
    """The licence of a guest with NVIDIA's vGPU driver: gridd.conf, the client configuration token, nvidia-gridd
    running, licensed.

    The driver itself, NVIDIA's vGPU guest driver, is installed by other means, from NVIDIA's licensing portal;
    nvidia_driver is for the data-centre driver, and cannot be combined with it.
    """

    licensing: Annotated[
        Literal["token", "server", "provider"],
        describe("by a token of NVIDIA's License System, by a legacy licence server, or by the cloud provider"),
    ] = "token"
    feature_type: Annotated[
        Literal["vgpu", "vws", "vcs"],
        describe(
            "FeatureType: vgpu for vGPUs; vws or vcs (Virtual Workstation, Virtual Compute Server) for GPUs "
            "that are passed through"
        ),
    ] = "vgpu"
    token_file: Annotated[
        str,
        describe(
            "the absolute path of a client_configuration_token_*.tok on the controller; nothing: already on the host",
            pattern=r"^(/.*/client_configuration_token_[A-Za-z0-9._-]+\.tok)?$",
        ),
    ] = ""
    token_directory: Annotated[
        Folder, describe("a folder's absolute path. ClientConfigTokenPath: the folder on the host that holds the token")
    ] = catalogue.TOKEN_DIRECTORY
    token_mode: Annotated[
        Literal["0744", "0600"],
        describe("the token's mode: 0744, as NVIDIA's guide says, or 0600: nvidia-gridd reads the token as root"),
    ] = "0744"
    server_address: Annotated[
        Address, describe("a host name or an IP address, or nothing. ServerAddress of a legacy licence server")
    ] = ""
    server_port: Annotated[Port, describe("ServerPort of a legacy licence server")] = 7070
    backup_server_address: Annotated[
        Address,
        describe("a host name or an IP address, or nothing. BackupServerAddress: a second legacy licence server"),
    ] = ""
    backup_server_port: Annotated[Port, describe("BackupServerPort of the second legacy licence server")] = 7070
    license_interval: Annotated[
        int, describe("LicenseInterval: the minutes that a licence is borrowed for, 10 to 10080", ge=10, le=10080)
    ] = 1440
    linger_interval: Annotated[
        int,
        describe("LingerInterval: the minutes that a licence is kept after its last use, 0 to 10080", ge=0, le=10080),
    ] = 0
    enable_ui: Annotated[bool, describe("EnableUI: licence management in nvidia-settings")] = False
    proxy_address: Annotated[
        Address,
        describe(
            "a host name or an IP address, or nothing. ProxyServerAddress: a proxy between the guest and "
            "NVIDIA's License System"
        ),
    ] = ""
    proxy_port: Annotated[int, describe("ProxyServerPort: a TCP port, 0 without a proxy", ge=0, le=65535)] = 0


SETTING_FIELDS = tuple(setting.field for setting in catalogue.read_vgpu_file().settings)
TOKEN_FIELDS = ("token_file", "token_mode")


def wanted_settings(fragment: VgpuGuest) -> dict[str, str]:
    """Return the keys that gridd.conf should have, in order; keys at gridd's defaults are omitted."""
    settings = {}
    for setting in catalogue.list_settings(fragment.licensing):
        value = catalogue.format_value(setting, getattr(fragment, setting.field))
        if value != setting.default:
            settings[setting.key] = value
    return settings


def differences(fragment: VgpuGuest, actual: dict[str, str]) -> list[str]:
    """Return how the keys of a gridd.conf differ in effect from the requested ones."""
    desired = wanted_settings(fragment)
    defaults = {setting.key: setting.default for setting in catalogue.read_vgpu_file().settings}
    problems = []
    for key in dict.fromkeys([*desired, *actual]):
        expected, is_set = desired.get(key, defaults.get(key, "")), actual.get(key, defaults.get(key, ""))
        if expected.casefold() != is_set.casefold():
            problems.append(f"{key} is {is_set or 'not set'}, expected {expected or 'nothing'}")
    return problems


def needs_vgpu(fragment: VgpuGuest) -> bool:
    """Return whether this licence is for vGPUs only; a provider's is for whatever the provider assigns."""
    return fragment.feature_type == "vgpu" and fragment.licensing != "provider"
