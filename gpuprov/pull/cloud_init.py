"""User-data of cloud-init that makes a host a puller: program, configuration, units, and the commands that enable them.

https://docs.cloud-init.io/en/latest/reference/modules.html#write-files
"""

import base64
import gzip
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from gpuprov.core.errors import GpuprovError
from gpuprov.host_code.pull.config import PLACE as CONFIG
from gpuprov.pull import program

PROGRAM = "/usr/local/lib/gpuprov/gpuprov-pull.pyz"
SIGNERS = "/etc/gpuprov/allowed_signers"
UNITS = "/etc/systemd/system"
# Bytes of user-data that every cloud takes: https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/user-data.html
LARGEST = 16 << 10
COMMANDS = (
    ("systemctl", "daemon-reload"),
    ("systemctl", "enable", "--now", "gpuprov-pull.timer"),
    ("systemctl", "enable", "gpuprov-pull-boot.service"),
    ("systemctl", "start", "--no-block", "gpuprov-pull.service"),
)


def format_user_data(config: Mapping[str, str], signers: str) -> str:
    """Format the snippet of one host. Raises GpuprovError if it is larger than a cloud takes, even compressed."""
    import yaml

    texts = {CONFIG: json.dumps(config, indent=2) + "\n", SIGNERS: signers, **_read_units()}
    files = [{"path": PROGRAM, "permissions": "0755", "encoding": "gz+b64", "content": _encode_program()}]
    for path, text in texts.items():
        files.append({"path": path, "permissions": "0600" if path == CONFIG else "0644", "content": text})
    document = {"write_files": files, "runcmd": [list(words) for words in COMMANDS]}
    made = "#cloud-config\n" + yaml.safe_dump(document, sort_keys=False, width=160)
    if (size := len(compress(made))) > LARGEST:
        message = f"the user-data of {config['name']} has {size} bytes, compressed; clouds take {LARGEST}"
        raise GpuprovError(message, "shorten --source or --results")
    return made


def compress(text: str) -> bytes:
    """Compress user-data, which cloud-init takes as well; the same bytes for the same text."""
    return gzip.compress(text.encode(), 9, mtime=0)


@cache
def _encode_program() -> str:
    return base64.b64encode(gzip.compress(program.build_archive(), 9, mtime=0)).decode()


@cache
def _read_units() -> dict[str, str]:
    folder = Path(__file__).parent / "units"
    return {f"{UNITS}/{path.name}": path.read_text(encoding="utf-8") for path in sorted(folder.iterdir())}
