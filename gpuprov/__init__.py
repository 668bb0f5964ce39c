"""Declare what a GPU host should be; plan it, apply it, prove it."""

__version__ = "0.1.0"
