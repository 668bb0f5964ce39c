"""Comparable work by pyinfra: packages, holds, files and services of the same spec, on a converged host."""

from pyinfra.operations import apt, files, server, systemd

PACKAGES = (
    "nvidia-kernel-dkms nvidia-kernel-support firmware-nvidia-gsp nvidia-alternative nvidia-legacy-check nvidia-smi "
    "libnvidia-ml1 libcuda1 libnvidia-ptxjitcompiler1 libnvidia-pkcs11-openssl3 libnvidia-cfg1 nvidia-cuda-mps"
).split()

apt.packages(name="Driver set", packages=[*PACKAGES, "nvidia-modprobe", "nvidia-persistenced"])
for module in ("nouveau", "nova_core"):
    files.line(name=f"Blacklist {module}", path="/etc/modprobe.d/gpuprov.conf", line=f"blacklist {module}")
for package in PACKAGES:
    server.shell(name=f"{package} is held", commands=[f"apt-mark showhold | grep -qx {package}"])
server.shell(name="Modules are built", commands=["dkms status | grep -q installed"])
systemd.service(name="Persistence daemon", service="nvidia-persistenced", running=None, enabled=True)
