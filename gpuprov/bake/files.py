"""Places in the image, and on the machine that starts it."""

from __future__ import annotations

FOLDER = "/var/lib/gpuprov/first-boot"
JOB = f"{FOLDER}/job.json"
"""The spec, as `gpuprov fleet work` takes it."""
DONE = f"{FOLDER}/done.json"
"""The report of the first boot, with the machine that it is of."""
LIBRARY = "/usr/local/lib/gpuprov-first-boot"
"""gpuprov itself, unpacked from wheels. Ansible is not among them."""
UNIT = "gpuprov-first-boot.service"
UNIT_FILE = f"/etc/systemd/system/{UNIT}"
