"""Ansible's connection plugin for images; Ansible is told of this folder while an image is baked."""
