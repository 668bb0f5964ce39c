"""The message of an action if the Python that runs Ansible lacks the package gpuprov, which decides for it."""

from __future__ import annotations

from typing import Any, Mapping


def package(why: str, variables: Mapping[str, Any]) -> str:
    """`why`: what the import said. `variables` of the host: a rendered project says which version it was made by."""
    version = variables.get("gpuprov_version")
    install = f"pip install gpuprov=={version}" if version else "pip install gpuprov, or pip install . in a checkout,"
    return (
        f"the Python that runs Ansible has no package gpuprov ({why}). Fix: {install} beside ansible-core, "
        "or run the play in an execution environment"
    )
