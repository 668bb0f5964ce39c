"""Questions on the terminal -> a draft. Suggested answers come from the catalogue."""

import re
from collections.abc import Callable, Mapping
from typing import get_args

from gpuprov.capabilities.container_toolkit.fragment import Runtime
from gpuprov.catalog.drivers import choose_kernel_modules, end_of_life, explain_refusal, find_branch, list_branches
from gpuprov.catalog.fabric import BOARD
from gpuprov.catalog.gpus import Gpu, explain_unknown, find_gpu, split_count
from gpuprov.catalog.instances import find_instance
from gpuprov.core import terminal
from gpuprov.core.errors import GpuprovError
from gpuprov.core.safe_parse import Tree, Unreadable, parse_whole
from gpuprov.init.draft import BASE, Draft, Group, group_name
from gpuprov.inventory import ranges

PATTERN = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9._-]|\[[0-9]+:[0-9]+\])*\Z")
USER = re.compile(r"[A-Za-z_][A-Za-z0-9._-]*\$?\Z")
NONE = "none"
ENGINES = get_args(Runtime)


Ask = Callable[[str, str, str, Callable[[str], str]], str]


def asking(given: Mapping[str, str]) -> Ask:
    """Return a function that asks: the option's name, the question, the suggested answer, a judge of the answer.

    `given`: answers by the names of the options. If it has `hosts`, no question is asked: missing answers are the
    suggested ones.
    """

    def ask(name: str, question: str, default: str, judge: Callable[[str], str]) -> str:
        if name not in given and "hosts" not in given:
            return terminal.ask(question, default, judge)
        answer = given.get(name, default)
        try:
            return judge(answer.strip())
        except GpuprovError as error:
            raise GpuprovError(f"--{name}: {error.message}", error.fix) from error

    return ask


def hosts_and_login(ask: Ask) -> dict[str, Tree]:
    """Ask for the hosts and the user who logs in there; return the hosts with their variables."""
    hosts = ask("hosts", "Hosts, with commas and ranges (gpu[01:08].example.com)", "", _check_hosts).split(",")
    user = ask("user", "User who logs in there by ssh", "root", _check_user)
    variables = {"ansible_user": user, **({} if user == "root" else {"ansible_become": True})}
    return {host: dict(variables) for host in hosts}


def may_reboot(ask: Ask) -> str:
    """Ask whether apply may reboot a host; return the value of `reboot`."""
    return (
        "if-needed"
        if ask("reboot", "May apply reboot a host, once, when it must?", "no", _check_yes) == "yes"
        else "never"
    )


def source(given: Mapping[str, str]) -> str:
    """Return where the answers come from, in words."""
    return "its options" if "hosts" in given else "answers on the terminal"


def draft(given: Mapping[str, str] | None = None) -> Draft:
    """Ask, and return a draft from the answers. Needs a terminal, unless `given` has all that `asking` needs."""
    given = given or {}
    ask = asking(given)
    hosts = hosts_and_login(ask)
    spec: Tree = {}
    named, number = split_count(ask("gpu", "GPU model (none: not known)", NONE, _check_model))
    model = find_gpu(named)
    count = number or 0
    if number is not None and "count" in given:
        raise GpuprovError(f"--gpu has a count ({number}), and --count is {given['count']}", "leave one of them out")
    if model and not count:
        instance = find_instance(named)
        usual = instance.count if instance else _count(model)
        count = int(ask("count", "GPUs in each host", str(usual), _check_number))
    if model:
        spec["gpu"] = {"model": model.key, "count": count}
    version = ask(
        "driver",
        f"Driver: any, a branch ({_list_offered(model)}) or a version",
        "any",
        lambda text: _check_version(text, model),
    )
    common: Tree = {**BASE, "nvidia_driver": {"version": version}}
    if model and model.fabric_manager.needed == "nvswitch-boards":
        board = "yes" if count >= BOARD else "no"
        if ask("nvswitch", "Are they joined by NVSwitches (HGX, DGX)?", board, _check_yes) == "yes":
            spec["fabric_manager"] = {}
    engines = ask("engines", f"Container engines ({', '.join(ENGINES)}; or none)", NONE, _check_engines)
    if engines != NONE:
        common["container_toolkit"] = {"runtimes": engines.split(",")}
    common["reboot"] = may_reboot(ask)
    group = Group(name=group_name(spec, "gpu", hosts), spec=spec, hosts=hosts)
    return Draft(source=source(given), common=common, groups=[group])


def _check_hosts(text: str) -> str:
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise GpuprovError("at least one host is needed")
    for name in names:
        if not PATTERN.match(name):
            right = ",".join(ranges.correct_names(name) or ranges.correct_names(text))
            fix = f"write {right}" if right else "allowed: gpu01, gpu[01:08].example.com, 192.0.2.17"
            raise GpuprovError(f'"{name}" is not a name of a host', fix)
        try:
            ranges.judge(name)
        except Unreadable as error:
            raise GpuprovError(str(error)) from error
    return ",".join(dict.fromkeys(names))


def _check_user(text: str) -> str:
    if not USER.match(text):
        raise GpuprovError(f'"{text}" is not a name of a user')
    return text


def _check_model(text: str) -> str:
    if text == NONE:
        return text
    model, count = split_count(text)
    gpu = find_gpu(model)
    if not gpu:
        what, fix = explain_unknown(model)
        raise GpuprovError(f'"{model}" {what}', fix)
    name = model if find_instance(model) else gpu.key
    return name if count is None else f"{name}:{_check_number(str(count))}"


def _count(model: Gpu) -> int:
    return BOARD if model.fabric_manager.needed == "nvswitch-boards" else 1


def _check_number(text: str) -> str:
    number = parse_whole(text)
    if not number or number > 64:
        raise GpuprovError("a number from 1 to 64")
    return str(number)


def _list_offered(model: Gpu | None) -> str:
    """Return branches that are supported, and that the GPU runs with, the newest first."""
    names = [
        branch.branch
        for branch in list_branches()
        if branch.type in ("PB", "LTSB") and end_of_life(branch.branch).ended is False
    ]
    fitting = [
        name for name in names if not model or not explain_refusal(model, name, choose_kernel_modules(model, name))
    ]
    return ", ".join(reversed(fitting)) or "gpuprov catalog drivers lists them"


def _check_version(text: str, model: Gpu | None) -> str:
    if text == "any":
        return text
    if not re.fullmatch(r"[0-9]{3}(\.[0-9]{1,3}(\.[0-9]{1,2})?)?", text):
        raise GpuprovError(f'"{text}" is not a driver version', "allowed: any, 580, 580.95.05")
    if not find_branch(text):
        raise GpuprovError(f"branch {text[:3]} is not in the catalogue", "gpuprov catalog drivers lists them")
    why = explain_refusal(model, text, choose_kernel_modules(model, text)) if model else None
    if why:
        raise GpuprovError(why)
    return text


def _check_yes(text: str) -> str:
    if text.lower() not in ("y", "yes", "n", "no"):
        raise GpuprovError("yes or no")
    return "yes" if text.lower().startswith("y") else "no"


def _check_engines(text: str) -> str:
    names = [name.strip() for name in text.split(",") if name.strip()]
    if names in ([], [NONE]):
        return NONE
    for name in names:
        if name not in ENGINES:
            raise GpuprovError(f'"{name}" is not a container engine', f"allowed: {', '.join(ENGINES)}")
    return ",".join(dict.fromkeys(names))
