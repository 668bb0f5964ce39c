"""The outcome of a host according to Ansible's events."""

from gpuprov.apply.model import Act, HostOutcome
from gpuprov.plan.events import Ledger, Tally
from gpuprov.plan.playbook import Ended

# Exit statuses of ansible-playbook that are about hosts: none failed, some failed, some were unreachable. With any
# other status it ended before it started work: https://docs.ansible.com/ansible/latest/cli/ansible-playbook.html
HOST_STATUSES = (0, 2, 4)
GONE = "see why it does not answer (its console, its network), then apply again, which completes it"
NOT_BACK = (
    "see its console. When it is up again, gpuprov verify says what it has started (host.first_boot); then apply "
    "again, or gpuprov rollback"
)


def judge(outcome: HostOutcome, ledger: Ledger, ended: Ended, act: Act = "apply") -> None:
    """Add the events of a host in one Ansible run to its `outcome`."""
    tally = ledger.hosts.get(outcome.host)
    interrupted = ended.how == "interrupted"
    if act == "apply":
        outcome.results = []  # they were read before
    if tally is None:
        if not interrupted:
            outcome.state = "failed"
            outcome.message = (
                ledger.complaint or f"ansible-playbook ended with status {ended.status} and did not say why"
            )
        return
    outcome.changed, outcome.made = tally.changed, tally.made
    outcome.warnings = list(dict.fromkeys([*outcome.warnings, *tally.warnings]))
    failure = tally.failure
    if tally.defect:
        outcome.state, outcome.message = "failed", tally.defect
    elif tally.unreachable:
        _report_lost(outcome, tally)
    elif late := tally.timed_out:
        outcome.state, outcome.message = "failed", late.message
        outcome.task, outcome.culprit = late.place, late.capability
        outcome.fix = "see what it waits for there and end it, then apply again; --timeout gives more time"
    elif failure:
        outcome.state = "locked" if failure.locked else "failed"
        outcome.task, outcome.culprit = failure.place, failure.capability
        outcome.message = failure.message
    elif interrupted:
        outcome.state, outcome.interrupted = "failed", True
        outcome.message = "interrupted" + (f" in {tally.last}" if tally.last else "")
    elif ended.status not in HOST_STATUSES or tally.failed is None:
        outcome.state = "failed"
        outcome.message = ledger.complaint or f"ansible-playbook ended with status {ended.status}"
    elif act == "prepare":
        outcome.state = "prepared"
    else:
        outcome.state = "changed" if tally.changed else "unchanged"


def _report_lost(outcome: HostOutcome, tally: Tally) -> None:
    """Report a host that became unreachable while a failed step was being undone, together with that failure."""
    outcome.state, outcome.task, outcome.message, outcome.fix = "unreachable", tally.lost, tally.unreachable, GONE
    if cause := tally.given_up_for:
        outcome.task, outcome.culprit = cause.place, cause.capability
        outcome.message = f"{cause.message}; then it was not reached: {tally.unreachable}"
        outcome.fix = NOT_BACK if cause.reboot else GONE
