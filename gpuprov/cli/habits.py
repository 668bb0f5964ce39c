"""Options in Ansible's form, one by one: for commands that do not take all of `options.inventory` and
`options.reaching`."""

import functools
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

import click

from gpuprov.cli.sections import Shared

C = TypeVar("C", bound=Callable[..., Any])
T = TypeVar("T")
shared = functools.partial(click.option, cls=Shared)


def combine(*decorators: Callable[[Any], Any]) -> Callable[[C], C]:
    """Return one decorator for these, as they would stand above a command."""
    return lambda command: functools.reduce(lambda inner, decorator: decorator(inner), reversed(decorators), command)


def keep_given(values: Mapping[str, T | None]) -> dict[str, T]:
    """Return the options that were given."""
    return {name: value for name, value in values.items() if value is not None}


def take(kind: type[Any], name: str) -> Callable[[C], C]:
    """Return a decorator that hands the values of options to the command as one argument `name` of this kind."""

    def decorate(command: C) -> C:
        @functools.wraps(command)
        def call(**given: Any) -> Any:
            values = keep_given({field: given.pop(field, None) for field in kind._fields})
            return command(**given, **{name: kind(**values)})

        return cast(C, call)

    return decorate


def extra_vars(about: str) -> Callable[[C], C]:
    """Return a decorator for -e/--extra-vars, as in Ansible."""
    return shared("-e", "--extra-vars", multiple=True, metavar="VARIABLES", help=about)


def refused(*words: str, why: str, is_flag: bool = False) -> Callable[[C], C]:
    """Return a decorator for an option that similar commands have, and this one cannot: its error says why, and what to
    do instead."""

    def refuse(_context: click.Context, _option: click.Parameter, value: Any) -> None:
        if value:
            raise click.UsageError(f"{words[-1]}: {why}")

    return click.option(*words, hidden=True, expose_value=False, is_flag=is_flag, callback=refuse)


def forks(command: C) -> C:
    """Add --forks; each job is a process of its own."""
    about = "How many hosts one process connects to at the same time, at most."
    return shared("-f", "--forks", metavar="N", type=click.IntRange(min=1), help=about)(command)


def user(command: C) -> C:
    """Add --user."""
    return shared("-u", "--user", metavar="NAME", help="Log in as this user where the inventory names none.")(command)
