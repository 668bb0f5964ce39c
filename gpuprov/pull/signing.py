"""Signatures by ssh-keygen: the key is an ssh key, in a file or in an agent."""

import subprocess
from pathlib import Path

from gpuprov.core.errors import GpuprovError
from gpuprov.host_code.pull.signed import BEGIN, NAMESPACE, PRINCIPAL

FIX = "ssh-keygen -t ed25519 -f KEY makes one; with a passphrase, add it to an agent and give KEY.pub"


def sign(key: Path, data: bytes) -> bytes:
    """Sign a bundle's archive."""
    made = _run_keygen("-Y", "sign", "-f", str(key), "-n", NAMESPACE, data=data)
    if not made.startswith(BEGIN):
        raise GpuprovError(f"ssh-keygen made no signature with {key}", FIX)
    return made


def format_allowed_signers(key: Path) -> str:
    """Format the line by which hosts know the key: for bundles, and for nothing else."""
    public = key if key.suffix == ".pub" else key.with_name(f"{key.name}.pub")
    try:
        text = (
            public.read_text(encoding="utf-8")
            if public.is_file()
            else _run_keygen("-y", "-P", "", "-f", str(key)).decode()
        )
    except (OSError, UnicodeDecodeError) as error:
        raise GpuprovError(f"{public} cannot be read: {error}", FIX) from error
    words = text.split()
    if len(words) < 2 or not words[0].startswith(("ssh-", "ecdsa-", "sk-")):
        raise GpuprovError(f"{public} is not a public ssh key", FIX)
    return f'{PRINCIPAL} namespaces="{NAMESPACE}" {words[0]} {words[1]}\n'


def _run_keygen(*words: str, data: bytes = b"") -> bytes:
    try:
        ran = subprocess.run(["ssh-keygen", *words], input=data, capture_output=True, check=False)
    except FileNotFoundError as error:
        raise GpuprovError("ssh-keygen, which signs bundles, is not installed", "install openssh-client") from error
    if ran.returncode:
        message = " ".join(ran.stderr.decode(errors="replace").split())[-300:]
        raise GpuprovError(f"ssh-keygen cannot sign with it: {message}", FIX)
    return ran.stdout
