"""Simulated GPU hosts: real systemd, sshd, apt and dkms in a container; only the silicon is missing."""
