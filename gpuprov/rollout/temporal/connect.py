"""Connection to a Temporal server: options first, then Temporal's own environment variables and configuration file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from gpuprov.core.errors import GpuprovError, UnreachableError

if TYPE_CHECKING:
    from temporalio.client import Client

DEFAULT = "localhost:7233"
FIX = "pip install 'gpuprov[fleet]'"


class Connection(NamedTuple):
    """Options of the command line for an engine and its Temporal server; empty values: use Temporal's environment."""

    engine: str = "temporal"
    folder: Path | None = None
    address: str = ""
    namespace: str = ""
    tls_ca: Path | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    tls_name: str = ""
    payload_keys: tuple[Path, ...] = ()


def check_installed() -> None:
    """Raise GpuprovError if Temporal's SDK is not installed."""
    from importlib.util import find_spec

    if find_spec("temporalio") is None:
        raise GpuprovError("Temporal's SDK (temporalio) is not installed, which this engine needs", FIX)


def _read_settings(given: Connection) -> dict[str, Any]:
    from temporalio.envconfig import ClientConfigProfile
    from temporalio.service import TLSConfig

    try:
        config: dict[str, Any] = {**ClientConfigProfile.load().to_client_connect_config()}
    except RuntimeError as error:
        raise GpuprovError(f"Temporal's configuration cannot be read: {error}") from error
    config["target_host"] = given.address or config.get("target_host", DEFAULT)
    config["namespace"] = given.namespace or config.get("namespace", "default")
    if given.tls_ca or given.tls_cert or given.tls_name:
        if (given.tls_cert is None) != (given.tls_key is None):
            raise GpuprovError("--tls-cert and --tls-key go together", "name both files")
        config["tls"] = TLSConfig(
            server_root_ca_cert=_read_bytes(given.tls_ca),
            domain=given.tls_name or None,
            client_cert=_read_bytes(given.tls_cert),
            client_private_key=_read_bytes(given.tls_key),
        )
    return config


def _read_bytes(path: Path | None) -> bytes | None:
    try:
        return path.read_bytes() if path else None
    except OSError as error:
        raise GpuprovError(f"{path} cannot be read: {error.strerror}") from error


async def connected(given: Connection) -> Client:
    """Return a client. Raises GpuprovError if the server cannot be reached."""
    import dataclasses

    from temporalio.client import Client
    from temporalio.converter import DataConverter, DefaultFailureConverterWithEncodedAttributes

    settings = _read_settings(given)
    converter = DataConverter.default
    if given.payload_keys:
        from gpuprov.rollout.temporal.codec import Encrypted, key

        codec = Encrypted([key(path) for path in given.payload_keys])
        failures = DefaultFailureConverterWithEncodedAttributes
        converter = dataclasses.replace(converter, payload_codec=codec, failure_converter_class=failures)
    try:
        return await Client.connect(**settings, data_converter=converter)
    except (RuntimeError, ValueError) as error:
        message = f"Temporal at {settings['target_host']} is not reached: {error}"
        fix = "--address HOST:PORT; --tls-ca, --tls-cert and --tls-key where the server wants TLS"
        raise UnreachableError(message, fix) from error
