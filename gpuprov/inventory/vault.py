"""Vault passwords: those given, and those in Ansible's configuration."""

import os
import stat
from collections.abc import Sequence
from typing import Any

from ansible import constants
from ansible.errors import AnsibleError
from ansible.parsing.vault import VaultSecret, VaultSecretsContext, get_file_vault_secret

from gpuprov.core.errors import GpuprovError
from gpuprov.inventory.origin import hide_decrypted
from gpuprov.inventory.sources import show_path
from gpuprov.spec.problem import Origin, Problem

# Maximum size of a file with a vault password, in bytes.
LARGEST = 1 << 20


def set_secrets(loader: Any, files: Sequence[str], ask: bool) -> list[Problem]:
    """Set the passwords of the loader (and of inline `!vault` values); return a problem for each file without a
    password.

    A file may have a vault id (`prod@FILE`). $ANSIBLE_VAULT_PASSWORD_FILE and the vault identity list count too.
    """
    hide_decrypted()
    secrets: list[tuple[str, Any]] = []
    problems: list[Problem] = []
    configured = [constants.DEFAULT_VAULT_PASSWORD_FILE] if constants.DEFAULT_VAULT_PASSWORD_FILE else []
    prompted = ask
    for slug in [*constants.DEFAULT_VAULT_IDENTITY_LIST, *files, *configured]:
        identity, _, file = str(slug).rpartition("@")
        if file == "prompt":
            prompted = True
            continue
        name = identity or constants.DEFAULT_VAULT_IDENTITY
        if endless := _explain_endless(file):
            problems.append(Problem(message=endless, origin=Origin(show_path(file))))
            continue
        try:
            secret = get_file_vault_secret(filename=file, vault_id=name, loader=loader)
            secret.load()
        except AnsibleError as error:
            problems.append(describe_unusable(file, error))
            continue
        secrets.append((name, secret))
        loader.set_vault_secrets(secrets)
    if prompted:
        fix = "give --vault-password-file FILE instead of --ask-vault-pass"
        password = ask_for_password("Vault password: ", "the vault password", fix)
        secrets.append((constants.DEFAULT_VAULT_IDENTITY, VaultSecret(password.encode())))
    use_secrets(loader, secrets)
    return problems


def _explain_endless(file: str) -> str:
    """Return why this is not read for a password, which Ansible would read whole; empty for what may be one: also for a
    pipe, and for what is not there."""
    try:
        state = os.stat(os.path.expanduser(file))
    except (OSError, ValueError):
        return ""
    if stat.S_ISCHR(state.st_mode) or stat.S_ISBLK(state.st_mode):
        return "this is a device; allowed for a vault password: a file, a program, or a pipe"
    return f"larger than {LARGEST >> 10} KiB: this is not a vault password" if _is_too_large(state) else ""


def _is_too_large(state: os.stat_result) -> bool:
    return stat.S_ISREG(state.st_mode) and not state.st_mode & 0o111 and state.st_size > LARGEST


def use_secrets(loader: Any, secrets: Sequence[tuple[str, Any]]) -> None:
    """Have the loader, and inline `!vault` values, decrypted with these passwords."""
    known = list(secrets)
    loader.set_vault_secrets(known or None)
    current = VaultSecretsContext.current(optional=True)
    if current is None:
        VaultSecretsContext.initialize(VaultSecretsContext(known))
    else:
        current.secrets = known


def describe_unusable(file: str, error: AnsibleError) -> Problem:
    text = str(error)
    if "was not found" in text:
        return Problem(message="no such vault password file", origin=Origin(show_path(file)))
    if "Invalid vault password" in text or "Empty" in text or "empty" in text:
        return Problem(message="the vault password file is empty", origin=Origin(show_path(file)))
    return Problem(message=f"the vault password cannot be read: {text.rstrip('.')}", origin=Origin(show_path(file)))


def ask_for_password(prompt: str, what: str, fix: str) -> str:
    """Return the password. Raises GpuprovError if there is no terminal; the fix names the option that needs none."""
    import warnings
    from getpass import GetPassWarning, getpass

    with warnings.catch_warnings():
        warnings.simplefilter("error", GetPassWarning)
        try:
            return getpass(prompt)
        except GetPassWarning as error:
            raise GpuprovError(f"{what} is to be asked for, and there is no terminal to ask on", fix) from error
