"""Knowledge of GPUs, MIG, drivers, CUDA and packages: the only home of hardware and package facts.

The facts are in `data/*.yaml`, each with its sources; the modules here read them and answer questions.
"""

from gpuprov.catalog.cuda import Support, check_support, find_max_cuda
from gpuprov.catalog.distributions import Distribution, find_distribution
from gpuprov.catalog.drivers import (
    EndOfLife,
    Version,
    choose_kernel_modules,
    derive_branch,
    end_of_life,
    explain_refusal,
    find_branch,
    list_branches,
)
from gpuprov.catalog.drivers.data import Branch, PackageSet
from gpuprov.catalog.gpus import Flavour, Gpu, find_by_pci_id, find_gpu, find_nearest
from gpuprov.catalog.lookup import find_symptom
from gpuprov.catalog.mig import Profile, ProfileClass, list_profiles
from gpuprov.catalog.packages import list_package_names, list_package_sets
from gpuprov.catalog.reader import Confidence
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
    "check_support",
    "choose_kernel_modules",
    "derive_branch",
    "end_of_life",
    "explain_refusal",
    "find_branch",
    "find_by_pci_id",
    "find_distribution",
    "find_gpu",
    "find_max_cuda",
    "find_nearest",
    "find_symptom",
    "list_branches",
    "list_package_names",
    "list_package_sets",
    "list_profiles",
]
