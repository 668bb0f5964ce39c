"""Addresses of hosts, which show that two names in different inventories are the same host."""

import socket
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait

from gpuprov.core.errors import GpuprovError
from gpuprov.facts.collect.settings import Settings
from gpuprov.host_code import machine
from gpuprov.spec.model import RawHost

AT_A_TIME = 64
# Seconds for resolving all names; a name that is not resolved in time is compared as text only.
LIMIT = 20.0
PORT = "22"
# ssh options that have another machine look up the address, where it may be another host's.
AWAY = ("proxyjump", "proxycommand", "-j")


def reached(hosts: Sequence[RawHost]) -> Iterator[tuple[str, str]]:
    """Yield each host with its address as the inventory writes it, and with each IP address and port that the name
    resolves to here. Raises GpuprovError if two hosts have an IP address and port in common."""
    first: dict[str, str] = {}
    for name, written, numbers in _list_numbered(hosts):
        for address in dict.fromkeys(numbers):
            if (other := first.setdefault(address, name)) != name:
                message, fix = machine.explain_refusal(other)
                raise GpuprovError(f"{name} is {message}: both are reached at {address}", fix)
        for address in dict.fromkeys((written, *numbers)):
            yield name, address


def _list_numbered(hosts: Sequence[RawHost]) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    known = [(raw.name, Settings(raw)) for raw in hosts]
    targets = {(settings.host, settings.text("port", PORT)) for _, settings in known if _is_direct(settings)}
    with ThreadPoolExecutor(min(AT_A_TIME, len(targets)) or 1) as pool:
        futures = {where: pool.submit(_list_numbers, *where) for where in targets}
        done = wait(futures.values(), timeout=LIMIT).done
        pool.shutdown(wait=False, cancel_futures=True)
    for name, settings in known:
        answer = futures.get((settings.host, settings.text("port", PORT))) if _is_direct(settings) else None
        yield name, settings.address, answer.result() if answer and answer in done else ()


def _is_direct(settings: Settings) -> bool:
    words = " ".join(settings.text(option) for option in ("ssh_args", "common_args", "extra_args")).lower()
    return settings.kind not in ("local", "podman", "docker") and not any(word in words for word in AWAY)


def _list_numbers(host: str, port: str) -> tuple[str, ...]:
    try:
        answers = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return ()
    return tuple(f"{answer[4][0]} port {port}" for answer in answers)
