"""Specs -> a plain Ansible project. Pure and byte-stable: the same specs give the same files."""

from gpuprov.render.project import Rendered, render, write
from gpuprov.render.variables import digest, role_variables

__all__ = ["Rendered", "digest", "render", "role_variables", "write"]
