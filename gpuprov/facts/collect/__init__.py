"""Read many hosts at a time: one script, one exec per host."""

from gpuprov.facts.collect.gather import gather

__all__ = ["gather"]
