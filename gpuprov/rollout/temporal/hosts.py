"""The workflow that knows which open roll-out has which hosts: claims are handled one after another, each
completely."""

from typing import Any

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from gpuprov.rollout.temporal import messages
    from gpuprov.rollout.temporal.messages import Refusal


@workflow.defn(name=messages.HOSTS)
class Hosts:
    """The workflow. It stays open; when its history grows long, it restarts with its current state."""

    @workflow.init
    def __init__(self, known: dict[str, str]) -> None:
        self._known = dict(known)

    @workflow.run
    async def run(self, _known: dict[str, str]) -> None:
        """Run until the history is long."""
        await workflow.wait_condition(
            lambda: workflow.info().is_continue_as_new_suggested() and workflow.all_handlers_finished()
        )
        workflow.continue_as_new(self._known)

    @workflow.update
    def claim(self, rollout: str, hosts: str) -> dict[str, Any] | None:
        """Claim these hosts, packed pairs of address and name; or return the roll-out that has some of them."""
        own = dict(messages.unpacked(hosts, list[tuple[str, str]]))
        for other, theirs in self._known.items():
            if other == rollout:
                continue
            if shared := [name for address, name in messages.unpacked(theirs, list[tuple[str, str]]) if address in own]:
                return messages.plain(Refusal(other, shared))
        self._known[rollout] = hosts
        return None

    @workflow.update
    def release(self, rollout: str) -> None:
        """Release the hosts of a roll-out that has ended."""
        self._known.pop(rollout, None)
