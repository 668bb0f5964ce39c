"""Ansible's connection plugin for images; Ansible searches this folder while an image is baked."""
