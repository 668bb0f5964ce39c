"""The message of an action if the Python that runs Ansible lacks the package gpuprov, which decides for it."""

from __future__ import annotations

from typing import Mapping

from .json_members import Json


def describe_missing_package(why: str, variables: Mapping[str, Json]) -> str:
    """Return the message. `why`: the error message of the import. `variables` of the host: in a rendered project, they
    include the version that made it."""
    version = variables.get("gpuprov_version")
    install = f"pip install gpuprov=={version}" if version else "pip install gpuprov, or pip install . in a checkout,"
    return (
        f"the Python that runs Ansible has no package gpuprov ({why}). Fix: {install} beside ansible-core, "
        "or run the play in an execution environment"
    )
