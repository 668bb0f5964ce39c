"""MIG without a host: the instances that fit on a GPU model, and the driver that they need."""

from gpuprov.hardware.mig.model import Model, find, model_of

__all__ = ["Model", "find", "model_of"]
