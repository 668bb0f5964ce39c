"""The good host with some texts changed, under a spec of several blocks, with the facts of exactly the probes that are
declared."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import reduce
from typing import Any

from gpuprov.capabilities import BY_NAME
from gpuprov.capabilities.base import Context, Outcome
from gpuprov.facts.probes.base import Facts, Output, Probe
from gpuprov.spec.model import Fragment, GpuSpec, HostSpec
from tests.capabilities.asking import CHECKS, facts, good

Texts = Mapping[str, Output | str]


def spec(
    beside: Mapping[str, Fragment] | None = None,
    /,
    *,
    name: str = "gpu1",
    gpu: str = "",
    site: dict[str, object] | None = None,
    **blocks: Fragment | None,
) -> HostSpec:
    """A host of this model with the blocks that are not None."""
    capabilities = {**(beside or {}), **{key: block for key, block in blocks.items() if block is not None}}
    return HostSpec(name=name, gpu=GpuSpec(model=gpu) if gpu else None, site=site or {}, capabilities=capabilities)


def declared(probes: Iterable[Probe[Any]], texts: Texts) -> Facts:
    """The facts of these probes and no others."""
    known = {**good(), **texts}
    return facts(**{probe.name: known[probe.name] for probe in probes})


def context(of: str, host: HostSpec, texts: Texts, run: frozenset[str] | None = None) -> Context[Any]:
    """What the role of a capability is worked out from."""
    desired = BY_NAME[of].desired
    assert desired
    return Context(host, host.capabilities[of], declared(desired.probes, texts), run)


def answer(check_id: str, host: HostSpec, texts: Texts, run: frozenset[str] | None = None) -> Outcome:
    """What a check says of the host; a capability that the spec leaves out has its defaults."""
    check = CHECKS[check_id]
    block = host.capabilities.get(check.capability) or BY_NAME[check.capability].fragment()
    return check.run(Context(host, block, declared(check.probes, texts), run))


def pick(values: Mapping[str, Any], paths: Iterable[str]) -> dict[str, Any]:
    """The values at these places of what a role gets; a dot stands between two keys."""
    return {path: reduce(lambda found, key: found[key], path.split("."), values) for path in paths}
