"""Knowledge of GPUs, MIG, drivers, CUDA and packages: the only home of hardware and package facts.

The facts are in `data/*.yaml`, each with its sources; the modules here read them and answer questions.
"""

from __future__ import annotations

from gpuprov.catalog.cuda import Support, max_cuda, supports
from gpuprov.catalog.distributions import Distribution, find_distribution
from gpuprov.catalog.drivers import (
    EndOfLife,
    Version,
    branch_of,
    branches,
    end_of_life,
    find_branch,
    kernel_modules_for,
    refusal,
)
from gpuprov.catalog.drivers.data import Branch, PackageSet
from gpuprov.catalog.gpus import Flavour, Gpu, by_pci_id, find_gpu, nearest_gpu
from gpuprov.catalog.mig import Profile, ProfileClass, profiles_for
from gpuprov.catalog.packages import package_names, package_sets
from gpuprov.catalog.reader import Confidence
from gpuprov.catalog.signatures import find_symptom
from gpuprov.catalog.symptoms import Symptom

__all__ = [
    "Branch",
    "Confidence",
    "Distribution",
    "EndOfLife",
    "Flavour",
    "Gpu",
    "PackageSet",
    "Profile",
    "ProfileClass",
    "Support",
    "Symptom",
    "Version",
    "branch_of",
    "branches",
    "by_pci_id",
    "end_of_life",
    "find_branch",
    "find_distribution",
    "find_gpu",
    "find_symptom",
    "kernel_modules_for",
    "max_cuda",
    "nearest_gpu",
    "package_names",
    "package_sets",
    "profiles_for",
    "refusal",
    "supports",
]
