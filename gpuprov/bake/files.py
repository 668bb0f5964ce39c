"""Places in the image, and on the machine that starts it."""

FOLDER = "/var/lib/gpuprov/first-boot"
# The spec, as `gpuprov fleet work` takes it.
JOB = f"{FOLDER}/job.json"
# The report of the first boot, with the machine that it is of.
DONE = f"{FOLDER}/done.json"
# gpuprov itself, unpacked from wheels. Ansible is not among them.
LIBRARY = "/usr/local/lib/gpuprov-first-boot"
UNIT = "gpuprov-first-boot.service"
UNIT_FILE = f"/etc/systemd/system/{UNIT}"
# gpuprov's own files where it bakes the machine that it runs on: outside of the image wherever /run is in memory.
LOG, CACHE = "/run/gpuprov-own/log", "/run/gpuprov-own/cache"
