"""What Ansible's check mode says that it would change; changes nothing."""

from __future__ import annotations

import time
from collections.abc import Sequence

from gpuprov.errors import GpuprovError
from gpuprov.limits import ACT_LIMIT
from gpuprov.plan import durations, playbook
from gpuprov.plan.collect import with_prediction
from gpuprov.plan.events import Ledger
from gpuprov.plan.extra import extra_variables, new_run, owner
from gpuprov.plan.model import HostPlan
from gpuprov.plan.show import Show
from gpuprov.plan.workspace import workspace
from gpuprov.spec.model import HostSpec, RawHost

DOING = "asking Ansible (--check --diff)"


def predict(
    pairs: Sequence[tuple[RawHost, HostSpec]],
    plans: Sequence[HostPlan],
    *,
    reboot: bool = False,
    forks: int = 0,
    timeout: float = ACT_LIMIT,
    show: Show | None = None,
) -> list[HostPlan]:
    """The plans with Ansible's prediction, where there is something to do. A failure of check mode is told in the plan."""
    asked = {plan.host: plan.run for plan in plans if plan.run and not (plan.blocked or plan.unreachable)}
    if not asked:
        return list(plans)
    ledger, seen, started = Ledger(timeout), show or Show(), time.monotonic()
    roles = {name for run in asked.values() for name in run}

    def note(event: playbook.Event) -> None:
        if step := ledger.feed(event):
            shown(step)

    def interrupted() -> None:
        seen.say("interrupted: Ansible's check mode is being ended; it changes nothing. Ctrl-C again does not wait")

    complaint = ""
    try:
        with workspace([pair for pair in pairs if pair[0].name in asked]) as folder:
            extra = extra_variables(owner(new_run()), asked, reboot=reboot, timeout=timeout)
            with seen.applying(list(asked), DOING, durations.earlier(DOING, roles)) as shown:
                ended = playbook.run(
                    folder, list(asked), extra, on_event=note, check=True, forks=forks, on_interrupt=interrupted
                )
        if ended.how == "interrupted":
            raise KeyboardInterrupt
        durations.note(DOING, roles, time.monotonic() - started, len(asked))
        complaint = ledger.complaint or f"ansible-playbook ended with status {ended.status}"
    except GpuprovError as error:
        complaint = error.message
    return [with_prediction(p, ledger.hosts.get(p.host), complaint) if p.host in asked else p for p in plans]
