#!/bin/bash
# bake.sh IMAGE.qcow2, with wheels/ and inventory.yaml in this folder: the image, which nobody may use meanwhile, is baked.
# It must have a Python 3.11 or newer with venv, and what modules are built with.
set -euo pipefail
image=$1
python=${PYTHON:-python3}
virt-customize --add "$image" --memsize 8192 --smp 4 --network --no-logfile \
  --mkdir /opt/gpuprov --copy-in inventory.yaml:/opt/gpuprov --copy-in wheels:/opt/gpuprov \
  --run-command "$python -m venv /opt/gpuprov/venv" \
  --run-command '/opt/gpuprov/venv/bin/pip install --no-index --find-links /opt/gpuprov/wheels gpuprov' \
  --run-command 'cd /opt/gpuprov && venv/bin/gpuprov bake inventory.yaml --limit image --root / --wheels wheels --clean-machine' \
  --delete /opt/gpuprov --selinux-relabel
