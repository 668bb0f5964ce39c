"""A bundle as stored on the server: an ssh signature, then its archive, which is not read before the signature is
verified.

https://github.com/openssh/openssh-portable/blob/master/PROTOCOL.sshsig
"""

from __future__ import annotations

import os
import subprocess
import tempfile

from . import kept
from .limits import CONFIG, SIGNATURE
from .refused import Refused

NAMESPACE = "gpuprov-bundle"
PRINCIPAL = "gpuprov"
BEGIN, END = b"-----BEGIN SSH SIGNATURE-----\n", b"\n-----END SSH SIGNATURE-----\n"
AGAIN = "make it again: gpuprov bundle INVENTORY --pull; nothing was unpacked or run"
LIMIT = 30.0


def split_signature(data: bytes) -> tuple[bytes, bytes]:
    """Return signature and archive. Raises Refused if it does not begin with a signature."""
    at = data[:SIGNATURE].find(END)
    if not data.startswith(BEGIN) or at < 0:
        raise Refused("the bundle does not begin with a signature", AGAIN)
    return data[: at + len(END)], data[at + len(END) :]


def verify_archive(data: bytes, signers: str) -> bytes:
    """Return the archive, if one of the signers signed it as a bundle. Raises Refused."""
    signature, content = split_signature(data)
    try:
        known = kept.read_contents(signers, CONFIG, own=True)
    except OSError as error:
        fix = "put the line there that gpuprov bundle --pull writes to allowed_signers"
        raise Refused(f"{signers} cannot be read: {error.strerror}", fix) from None
    with tempfile.TemporaryDirectory(prefix="gpuprov-") as folder:
        paths = {"signers": known, "signature": signature}
        for name, text in paths.items():
            with open(os.path.join(folder, name), "wb") as file:
                file.write(text)
        command = ["ssh-keygen", "-Y", "verify", "-f", f"{folder}/signers", "-I", PRINCIPAL, "-n", NAMESPACE]
        try:
            ran = subprocess.run(
                [*command, "-s", f"{folder}/signature"],
                input=content,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                check=False,
                timeout=LIMIT,
            )
        except FileNotFoundError:
            raise Refused(
                "ssh-keygen, which verifies the signature, is not installed", "install openssh-client"
            ) from None
        except subprocess.TimeoutExpired:
            raise Refused(f"ssh-keygen did not end within {LIMIT:g} s", "run it again") from None
    if ran.returncode:
        message = " ".join(ran.stdout.decode(errors="replace").replace(folder, "").split())[:300]
        fix = f"sign it with a key of {signers}; an ssh-keygen older than OpenSSH 8.1 knows no signatures"
        raise Refused(f"the signature of the bundle is invalid: {message}", f"{fix}; {AGAIN}")
    return content
