"""Read many hosts at a time: one script, one exec per host."""

from gpuprov.gather.gather import gather

__all__ = ["gather"]
