/* Confidential computing: the mode in which whoever hosts the machine gave its GPUs out. The fault confidential-computing says one. */
#include <stdio.h>
#include <string.h>

#include "sim.h"

typedef struct {
    unsigned environment, feature, devtools;
} nvmlConfComputeSystemState_t;

EXPORT nvmlReturn_t nvmlSystemGetConfComputeState(nvmlConfComputeSystemState_t *state) {
    char path[PATH_SIZE], mode[16] = "off";
    if (!initialized()) return NVML_ERROR_UNINITIALIZED;
    if (!state) return NVML_ERROR_INVALID_ARGUMENT;
    if (config_number("architecture", 0) < NVML_ARCH_HOPPER) return NVML_ERROR_NOT_SUPPORTED;
    FILE *file = fopen(host_path(path, "/var/lib/gpuprov-sim/faults/confidential-computing"), "re");
    if (file) {
        if (fscanf(file, "%15s", mode) != 1) strcpy(mode, "on");
        fclose(file);
    }
    bool on = strcmp(mode, "off") != 0;
    *state = (nvmlConfComputeSystemState_t){on ? 2U : 0U, on, !strcmp(mode, "devtools")};
    return NVML_SUCCESS;
}
