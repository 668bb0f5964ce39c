"""A bake: read the image, run the acts that need no machine, judge what its files decide, leave the rest to the first
boot, clean."""

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from gpuprov.apply.log import Log
from gpuprov.apply.model import HostOutcome
from gpuprov.apply.outcome import judge as judge_events
from gpuprov.bake import clean, first_boot, hardware, own_root, place
from gpuprov.bake.model import Baked, Options
from gpuprov.core import chroot
from gpuprov.core.errors import GpuprovError
from gpuprov.core.signals import ended_politely
from gpuprov.fleet.specs import Fleet
from gpuprov.plan import playbook
from gpuprov.plan.events import Ledger
from gpuprov.plan.extra import extra_variables, new_run, owner
from gpuprov.plan.read import Pair, Reading, for_ansible, read
from gpuprov.plan.show import Show
from gpuprov.plan.workspace import workspace
from gpuprov.spec.model import RACK, SITE_VARIABLES
from gpuprov.verify import images
from gpuprov.verify.evaluate import MOMENTS, Result, is_broken

CONNECTIONS = Path(__file__).parent / "connection"


def bake(fleet: Fleet, options: Options, show: Show | None = None) -> Baked:
    """Bake the image for the fleet's only host, in namespaces of this process (`place.enter`). An interrupt ends in a
    Baked.

    Raises GpuprovError before anything of the image is changed, if something that is needed is missing.
    """
    (pair,) = fleet.pairs
    show, started = show or Show(), time.monotonic()
    made = Baked(host=pair[0].name, root="/" if options.own_root else str(options.root))
    disks = own_root.list_block_devices() if options.own_root else {}
    place.mount(options.root, hardware.tree(pair[1]), disks)
    prepared = first_boot.prepare(fleet, options)
    with ended_politely():
        try:
            _run_bake(local_pair(pair, options.root), prepared, options, made, show)
        except KeyboardInterrupt:
            made.state = "interrupted"
    made.seconds = time.monotonic() - started
    return made


def local_pair(pair: Pair, root: Path) -> Pair:
    """Return the host as it is reached in the image: over no network, and without its secrets."""
    raw, spec = pair
    kept = {name: value for name, value in raw.connection.items() if name in SITE_VARIABLES or name == RACK}
    reached = {
        "ansible_connection": chroot.CONNECTION,
        "ansible_host": str(root),
        "ansible_remote_tmp": f"{chroot.PLACE}/ansible",
    }
    return msgspec.structs.replace(raw, connection={**kept, **reached}), spec


def _run_bake(pair: Pair, prepared: first_boot.Prepared, options: Options, made: Baked, show: Show) -> None:
    name = pair[0].name
    reading = _read(pair, "reading the image", show)
    if obstacle := next(filter(stops, reading.results), None):
        made.state, made.task = "blocked", obstacle.check
        made.message, made.fix = f"{obstacle.found}; wanted: {obstacle.expected}", obstacle.fix
        return
    made.kernels = tuple(place.run(options.root, "ls /lib/modules 2>/dev/null || true").split())
    before = clean.before(options.root, own_root=options.own_root, everything=options.clean_machine)
    try:
        outcome = _apply(pair, reading, options, made, show)
        if outcome.state in ("changed", "unchanged"):
            after = _read(pair, "judging the image", show)
            _judge(list(after.results), made)
            first_boot.install(options.root, prepared)
        else:
            interrupted = outcome.message.startswith("interrupted")
            made.state = "interrupted" if interrupted else "failed"
            made.task, made.message, made.fix = outcome.task, outcome.message, outcome.fix
        made.changed = tuple(outcome.changed)
    finally:
        made.cleaned = clean.clean(options.root, before)
        made.left = clean.left(options.root, before)
    made.kept = clean.describe(before)
    show.say(f"{name}: cleaned: {', '.join(made.cleaned) or 'nothing to remove'}")


def stops(result: Result) -> bool:
    """Return whether a check keeps the image from being baked: not one that only the machine can answer."""
    return result.refuses and (is_broken(result) or not images.waits(result.check, result.moment, stops=result.stops))


def _read(pair: Pair, doing: str, show: Show) -> Reading:
    with show.reading([pair[0].name], doing) as done:
        reading = read([pair], on_done=done)[pair[0].name]
    if reading.lost:
        raise GpuprovError(reading.lost.message, reading.lost.fix)
    return reading


def _judge(results: Sequence[Result], made: Baked) -> None:
    """Divide the results of verify into those that the image decides and those of the first boot."""
    verified = [result for result in results if result.moment in MOMENTS and not result.stops]
    judged = [
        result for result in verified if is_broken(result) or not images.waits(result.check, result.moment, stops=False)
    ]
    failing = [result for result in judged if result.status in ("fail", "error")]
    made.completed = tuple(result for result in failing if images.is_completed(result.check) and not is_broken(result))
    made.results = tuple(result for result in judged if result not in made.completed)
    made.later = tuple(
        dict.fromkeys(result.check for result in verified if result not in judged and result.status != "n/a")
    )


def _apply(pair: Pair, reading: Reading, options: Options, made: Baked, show: Show) -> HostOutcome:
    """Run Ansible's first two acts in the image."""
    name, run = pair[0].name, new_run()
    leader, ledger = owner(run), Ledger(options.timeout)
    only = {name: dict.fromkeys(pair[1].capabilities, "a new image")}
    extra = extra_variables(leader, only, timeout=options.timeout)
    extra |= {"gpuprov_act_last": "bake"}
    outcome = HostOutcome(host=name, ran=only[name])
    with _connections(), workspace([for_ansible(pair, reading)]) as folder, Log(options.log_dir, run) as log:
        made.log = str(log.path)
        with show.applying([name], "baking") as shown:

            def note(event: playbook.Event) -> None:
                if event.get("stdout"):
                    log.write(str(event["stdout"]))
                if step := ledger.feed(event):
                    shown(step)

            ended = playbook.run(folder, [name], extra, on_event=note)
        judge_events(outcome, ledger, ended)
    return outcome


@contextmanager
def _connections() -> Iterator[None]:
    """Have Ansible find the connection to images."""
    before = os.environ.get("ANSIBLE_CONNECTION_PLUGINS")
    os.environ["ANSIBLE_CONNECTION_PLUGINS"] = str(CONNECTIONS)
    try:
        yield
    finally:
        if before is None:
            del os.environ["ANSIBLE_CONNECTION_PLUGINS"]
        else:
            os.environ["ANSIBLE_CONNECTION_PLUGINS"] = before
