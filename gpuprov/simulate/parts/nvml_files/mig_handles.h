/* From a GPU instance's handle to the state of its GPU. */
#ifndef GPUPROV_SIM_MIG_HANDLES_H
#define GPUPROV_SIM_MIG_HANDLES_H

#include "sim.h"

/* As mig_open; NOT_FOUND once the instance is gone. */
nvmlReturn_t gi_open(nvmlGpuInstance_t instance, bool write, struct mig *mig, unsigned *gi);
nvmlReturn_t nvmlDeviceGetGpuInstanceById(nvmlDevice_t device, unsigned id, nvmlGpuInstance_t *instance);

#endif
