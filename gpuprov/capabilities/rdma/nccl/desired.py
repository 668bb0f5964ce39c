"""/etc/nccl.conf as the role writes it."""

from __future__ import annotations

from typing import Any

from gpuprov.capabilities.answers import HEADER
from gpuprov.capabilities.base import Context
from gpuprov.capabilities.rdma.fragment import Rdma
from gpuprov.capabilities.rdma.nccl import conf
from gpuprov.catalog.rdma.nccl import CONFIG
from gpuprov.probe.rdma import DEVICES
from gpuprov.probe.rdma.nccl import MARK, NCCL

ABOUT = f"As a whole: lines of others would count before these or be out of date. More variables: {MARK}."


def wanted(ctx: Context[Rdma]) -> dict[str, Any]:
    """`manage`: whether it is gpuprov's. `path` and `text` of the file, empty where it is left as it is; `problem`: why it cannot be
    written. `keep`: the one that is there is another's, and is kept beside it."""
    found = ctx.facts.get(NCCL)
    made = {
        "manage": ctx.fragment.nccl.manage,
        "path": CONFIG,
        "text": "",
        "problem": "",
        "keep": found.lines is not None and not found.ours,
    }
    if not ctx.fragment.nccl.manage:
        return made
    try:
        lines = conf.lines(ctx.fragment, ctx.facts.get(DEVICES))
    except conf.ConfError as error:
        return {**made, "problem": f"{CONFIG} is left as it is until the devices are there: {error}"}
    return {**made, "text": "\n".join([f"{HEADER}# {ABOUT}", *lines]) + "\n"}
