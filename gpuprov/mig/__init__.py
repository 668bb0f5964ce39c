"""MIG without a host: which instances fit on a GPU model, and what they need of its driver."""

from gpuprov.mig.model import Model, find, model_of

__all__ = ["Model", "find", "model_of"]
