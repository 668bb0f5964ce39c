"""Comparison of a host's GPUs with their desired state, and the changes: everything is checked before anything is
destroyed."""

from __future__ import annotations

import fnmatch
from typing import Any, Iterable, Mapping, Sequence

from . import act as mig_act
from . import layout as mig_layout
from . import plan as mig_plan
from . import users as mig_users
from .nvml import Nvml
from .state import Card, User, format_instance


class Refused(Exception):
    """The reason why the layout is impossible, in one line with the fix.

    `midway`: something was changed before that was known. `reboot`: the fix is a reboot, after which the boot unit
    continues.
    """

    midway = reboot = False


class Broken(Refused):
    """A failure after something was changed."""

    midway = True


class Judged:
    """The changes that every GPU needs, the processes in the way, and the reason why it is impossible. `services`:
    units that may be stopped for it."""

    def __init__(self, nvml: Nvml, config: Mapping[str, Any], services: Sequence[str]) -> None:
        self.cards = nvml.cards()
        self.targets = select_targets(config, self.cards)
        users = mig_users.list_users(nvml, self.cards)
        strangers = [user for user in users if not is_service(user.unit, services)]
        named_cards = [card for card in self.cards if card.gpu.index in self.targets]
        self.changes = [mig_plan.plan_change(card, self.targets[card.gpu.index], strangers) for card in named_cards]
        why: dict[str, list[str]] = {}
        for change in self.changes:
            why.setdefault(change.problem, []).append(str(change.card))
        self.problems = [f"{', '.join(cards)}: {text}" for text, cards in why.items() if text]
        in_way = [f"{change.card}: {user}" for change in self.changes for user in strangers if change.concerns(user)]
        self.in_use = [] if self.problems else list(dict.fromkeys(in_way))
        if self.in_use:
            self.problems = [
                f"in use: {'; '.join(self.in_use)}. Nothing was changed; end or drain that, then apply again"
            ]
        changing = {change.card.gpu.index for change in self.changes if change.anything}
        beside = [user for user in users if user.gpu in changing]
        taken = [user for user in users if any(change.concerns(user) for change in self.changes)]
        self.services = sorted({user.unit for user in taken if is_service(user.unit, services)})
        self.beside = sorted({user.unit for user in beside if is_service(user.unit, services)} - {*self.services})
        computing = {user.pid for user in strangers if user.computes}
        self.watching = sorted({str(user) for user in beside if user in strangers and user.pid not in computing})
        self.nodes = mig_act.list_missing_nodes(self.cards)

    def answer(self) -> dict[str, Any]:
        """Return the answer as JSON: `resets`: GPUs that are reset for it; `watching`: processes that do not compute
        and will not see the change."""
        judged = not any(change.problem for change in self.changes)
        steps = [step for change in self.changes for step in change.steps()] if judged else []
        if self.nodes and judged and not steps:
            steps = [f"make {len(self.nodes)} device node(s) in /dev/nvidia-caps"]
        return {
            "driver": True,
            "changed": bool(steps),
            "steps": steps,
            "problem": "; ".join(self.problems),
            "in_use": self.in_use,
            "resets": [change.card.gpu.address for change in self.changes if change.switches and change.card.resets],
            "services": self.services,
            "beside": self.beside,
            "watching": self.watching,
        }


def is_service(unit: str, services: Sequence[str]) -> bool:
    """Return whether a unit is one of the services, which may be patterns ("gpuprov-mps*.service")."""
    return any(fnmatch.fnmatchcase(unit, pattern) for pattern in services)


def select_targets(config: Mapping[str, Any], cards: Sequence[Card]) -> dict[int, mig_layout.Target]:
    """Return the desired state of each GPU, by index."""
    try:
        entries = mig_layout.normalize_layout(config["mode"], config["layout"], config["mig_parted"])
        return mig_layout.select_targets(entries, [card.gpu for card in cards])
    except mig_layout.LayoutError as error:
        raise Refused(f"mig: {error}") from error
    except (KeyError, TypeError) as error:
        raise Refused(f"what is wanted lacks {error}; gpuprov apply writes it again") from error


def carry_out(nvml: Nvml, judged: Judged, services: Sequence[str], *, may_reset: bool) -> str:
    """Make the changes, GPU by GPU. Raises Broken with the resulting state if something fails; returns the remaining
    problem."""

    def using(card: Card) -> list[User]:
        return [user for user in mig_users.list_users(nvml, [card]) if not is_service(user.unit, services)]

    try:
        for change in judged.changes:
            if change.anything:
                change_gpu(nvml, change, judged.targets[change.card.gpu.index], using, may_reset)
        return mig_act.make_nodes(mig_act.list_missing_nodes(nvml.cards())) or ""
    except (mig_act.Failed, nvml.error) as error:
        try:
            now = "; ".join(line for card in nvml.cards() for line in describe_card(card))
        except nvml.error as silent:
            now = f"what NVML does not tell ({silent}; nvidia-smi, and dmesg | grep NVRM, say more)"
        broken = Broken(f"{error}. Now there is: {now}. Applying it again goes on from there")
        broken.reboot = isinstance(error, mig_act.Waits)
        raise broken from error


def change_gpu(
    nvml: Nvml, change: mig_plan.Change, target: mig_layout.Target, using: mig_act.Users, may_reset: bool
) -> None:
    mig_act.clear(nvml, change)
    if change.mode:
        mig_act.switch_mode(nvml, change.card, change.enabled, using, may_reset)
    if change.blind:
        change = mig_plan.plan_change(nvml.card(change.card.gpu.address), target)
        if change.problem:
            raise mig_act.Failed(f"{change.card}: {change.problem}")
    mig_act.make(nvml, change)


def describe_card(card: Card) -> list[str]:
    """Describe a GPU with MIG in one line; return an empty list for another."""
    if not card.gpu.capable:
        return []
    has = (
        ", ".join(
            format_instance(instance.profile, instance.start, instance.slices, instance.sizes)
            for instance in card.instances
        )
        or "no instances"
    )
    pending = "" if card.current == card.pending else f", {'enabled' if card.pending else 'disabled'} pending"
    return [f"GPU {card.gpu.index} {f'MIG with {has}' if card.current else 'without MIG'}{pending}"]


def describe_state(cards: Iterable[Card], users: Sequence[User], complaint: str | None = None) -> dict[str, Any]:
    """Return the whole state, as JSON."""
    shown = []
    for card in cards:
        instances = [
            {**instance._asdict(), "compute": [part._asdict() for part in instance.compute]}
            for instance in card.instances
        ]
        mode = {"current": bool(card.current), "pending": bool(card.pending), "resets": card.resets}
        using = [user._asdict() for user in users if user.gpu == card.gpu.index]
        shown.append({**card.gpu._asdict(), **mode, "instances": instances, "users": using})
    return {"driver": True, "gpus": shown, "problem": complaint or ""}
