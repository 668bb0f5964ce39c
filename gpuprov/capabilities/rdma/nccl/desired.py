"""/etc/nccl.conf as the role writes it."""

from typing import TypedDict

from gpuprov.capabilities.answers import HEADER
from gpuprov.capabilities.base import Context
from gpuprov.capabilities.rdma.fragment import Rdma
from gpuprov.capabilities.rdma.nccl import conf
from gpuprov.catalog.rdma.nccl import CONFIG
from gpuprov.facts.probes.rdma import DEVICES
from gpuprov.facts.probes.rdma.nccl import MARK, NCCL

ABOUT = f"As a whole: lines of others would count before these or be out of date. More variables: {MARK}."


class Conf(TypedDict):
    """NCCL's file: whether gpuprov manages it, and its text, empty if it is left as it is."""

    manage: bool
    text: str
    # Why it cannot be written.
    problem: str
    # The existing file is not gpuprov's, and a copy is kept beside it.
    keep: bool


def plan_file(ctx: Context[Rdma]) -> Conf:
    state = ctx.facts.get(NCCL)
    made: Conf = {
        "manage": ctx.fragment.nccl.manage,
        "text": "",
        "problem": "",
        "keep": state.lines is not None and not state.ours,
    }
    if not ctx.fragment.nccl.manage:
        return made
    try:
        lines = conf.lines(ctx.fragment, ctx.facts.get(DEVICES))
    except conf.ConfError as error:
        return {**made, "problem": f"{CONFIG} is left as it is until the devices are there: {error}"}
    return {**made, "text": "\n".join([f"{HEADER}# {ABOUT}", *lines]) + "\n"}
