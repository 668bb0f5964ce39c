"""Completion on TAB: files, hosts and groups of the inventory, capabilities, GPU models. A failure offers nothing."""

import os
from collections.abc import Iterable
from contextlib import suppress

import click
from click.shell_completion import CompletionItem


def files(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete files by the shell's own completion."""
    return [CompletionItem(incomplete, type="file")]


def hosts(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the last part of a pattern: hosts, groups, `!` and `&` before them; after an @, files. A name may
    contain colons itself."""
    if incomplete.startswith("@"):
        return [CompletionItem(name) for name in _list_files(incomplete[1:])]
    names = _list_names(ctx)
    before, comma, last = incomplete.rpartition(",")
    offered = _list_named(f"{before}{comma}", last, names)
    if offered or comma:
        return offered
    before, colon, last = incomplete.rpartition(":")
    return _list_named(f"{before}{colon}", last, names)


def capabilities(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete capabilities with commas between them."""
    from gpuprov.capabilities import CAPABILITIES

    return _complete_more(incomplete, (capability.name for capability in CAPABILITIES))


def tests(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete kinds of acceptance tests with commas between them."""
    from gpuprov.accept.model import KINDS

    return _complete_more(incomplete, KINDS)


def models(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete GPU models of the catalogue."""
    from gpuprov.catalog.gpus import list_gpus

    return [CompletionItem(gpu.key) for gpu in list_gpus() if gpu.key.lower().startswith(incomplete.lower())]


def words(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete capabilities and fields; after a capability and a dot, its checks too."""
    from gpuprov.capabilities import BY_NAME
    from gpuprov.explain.fields import fields

    name, dot, _ = incomplete.partition(".")
    if not dot or name not in BY_NAME:
        return _make_items("", incomplete, BY_NAME)
    inner = (field.name for field in fields(name))
    return _make_items("", incomplete, dict.fromkeys([*inner, *(check.id for check in BY_NAME[name].checks)]))


def rows(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete filter words of `gpuprov catalog`: models, if a table is of models."""
    return models(ctx, param, incomplete) if ctx.params.get("table") in ("gpus", "mig") else []


def recipes(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete recipes of the catalogue."""
    from gpuprov.catalog.recipes import recipes as known

    return _make_items("", incomplete, ("list", *(recipe.key for recipe in known())))


def _complete_more(incomplete: str, names: Iterable[str]) -> list[CompletionItem]:
    """Complete another of these names after a comma."""
    before, comma, last = incomplete.rpartition(",")
    given = before.split(",")
    return _make_items(before + comma, last, (name for name in names if name not in given))


def _list_named(before: str, last: str, names: Iterable[str]) -> list[CompletionItem]:
    sign = last[:1] if last[:1] in ("!", "&") else ""
    return _make_items(f"{before}{sign}", last[len(sign) :], names)


def _make_items(before: str, incomplete: str, names: Iterable[str]) -> list[CompletionItem]:
    return [CompletionItem(before + name) for name in names if name.startswith(incomplete)]


def _list_names(ctx: click.Context) -> list[str]:
    """Return groups, then hosts. A source that would be executed, or that needs a password, is not read for
    completion."""
    from gpuprov.core.errors import GpuprovError
    from gpuprov.inventory import find_default_sources, load

    given = ctx.params
    with suppress(GpuprovError, OSError):
        sources = (
            *(given.get("sources") or _list_left(ctx)),
            *(given.get("inventories") or ()),
        ) or find_default_sources()
        if given.get("ask_vault_pass") or any(map(_runs_program, sources)):
            return []
        raw_hosts = load(sources, vault_password_files=given.get("vault_password_files") or ()).hosts
        groups = dict.fromkeys(group for host in raw_hosts for group in host.groups)
        return ["all", *groups, *(host.name for host in raw_hosts)]
    return []


def _list_left(ctx: click.Context) -> list[str]:
    """Return inventories before the completed option: click separates no arguments while an option still lacks its
    value."""
    return [word for word in ctx.args if "sources" in ctx.params and os.path.exists(word)]


def _runs_program(source: str) -> bool:
    """True if reading the source would run a program from it."""
    if os.path.isdir(source):
        paths = [os.path.join(place, name) for place, _, names in os.walk(source) for name in names]
        return any(os.access(path, os.X_OK) for path in paths)
    return os.path.isfile(source) and os.access(source, os.X_OK)


def _list_files(start: str) -> list[str]:
    """Return files with this prefix, and gpuprov's own retry files."""
    from glob import escape, glob

    from gpuprov.report.files import state_folder

    place = os.path.join(escape(str(state_folder("retry"))), "*.retry")
    paths = glob(f"{escape(os.path.expanduser(start))}*") if start else sorted(glob(place), reverse=True)
    return [f"@{path}/" if os.path.isdir(path) else f"@{path}" for path in paths]
