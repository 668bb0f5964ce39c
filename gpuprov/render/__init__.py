"""Specs -> a plain Ansible project. Pure and byte-stable: the same specs give the same files."""

from gpuprov.render.project import Rendered, render, write
from gpuprov.render.spec_digest import digests
from gpuprov.render.variables import role_variables

__all__ = ["Rendered", "digests", "render", "role_variables", "write"]
