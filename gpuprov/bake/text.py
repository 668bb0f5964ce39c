"""The outcome of a bake as text and as JSON."""

from collections.abc import Iterator

import msgspec

from gpuprov.bake.model import Baked, BakedDocument
from gpuprov.core.safe_parse import format_document
from gpuprov.core.sanitize import counted
from gpuprov.verify.images import AT_FIRST_BOOT


def as_json(made: Baked) -> str:
    """Return the outcome as JSON."""
    return format_document(BakedDocument(**msgspec.structs.asdict(made), exit_code=made.code))


def as_text(made: Baked, *, verbose: bool = False) -> str:
    """Return the outcome as text: what the image proves, what waits for the first boot, what is left of a host."""
    return "\n".join(_list_lines(made, verbose))


def _list_lines(made: Baked, verbose: bool) -> Iterator[str]:
    if made.state != "baked":
        yield (
            f"{made.host}: {made.state}"
            + (f" in {made.task}" if made.task else "")
            + (f": {made.message}" if made.message else "")
        )
        yield from [f"  fix: {made.fix}"] * bool(made.fix)
        yield from [f"  log: {made.log}"] * bool(made.log)
    else:
        passed = [result for result in made.results if result.status == "pass"]
        kernels = f", for {', '.join(made.kernels)}" if made.kernels else ""
        yield (
            f"{made.host}: {made.root} baked{kernels}: {counted(len(passed), 'check')} passed, "
            f"{len(made.failing)} failed"
        )
        yield from (
            f"  {result.status} {result.check}: {result.found}"
            for result in made.results
            if verbose or result in made.failing
        )
        yield from (f"    fix: {result.fix}" for result in made.failing if result.fix)
        names = [*(result.check for result in made.completed), *made.later]
        shown = f": {', '.join(names)}" if verbose else ""
        yield f"  {AT_FIRST_BOOT}: {counted(len(names), 'check')}{shown}"
    yield from (f"  left in the image: {text}" for text in made.left)
    if made.kept and made.root == "/":
        yield f"  every clone would share this of the machine: {', '.join(made.kept)}"
        yield "    fix: cloud-init clean --machine-id --logs as the last step, or --clean-machine"
    elif made.kept:
        yield f"  every clone would have the same ssh host keys, which the image had before: {', '.join(made.kept)}"
        yield "    fix: remove them, and have the first boot make new ones (ssh-keygen -A, or cloud-init)"
