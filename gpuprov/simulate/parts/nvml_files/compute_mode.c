/* Compute mode: of a whole GPU, until the next boot or loading of the module. A GPU in MIG mode has the default one, and each of
   its MIG devices, too. https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceCommands.html */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sim.h"

#define FOLDER "/run/gpuprov-sim/compute-mode"

static const char *file_of(char path[PATH_SIZE], unsigned gpu) {
    char name[64];
    snprintf(name, sizeof name, FOLDER "/%u", gpu);
    return host_path(path, name);
}

static unsigned kept(unsigned gpu) {
    char path[PATH_SIZE], now[128], then[128];
    unsigned mode = NVML_COMPUTEMODE_DEFAULT;
    FILE *file = fopen(file_of(path, gpu), "re");
    if (!file) return mode;
    bool read = fscanf(file, "%u %127s", &mode, then) == 2;
    fclose(file);
    host_boot_marker(now, sizeof now);
    return read && !strcmp(now, then) ? mode : NVML_COMPUTEMODE_DEFAULT;
}

static bool in_mig_mode(unsigned gpu) {
    struct mig mig;
    if (mig_open(gpu, false, &mig) != NVML_SUCCESS) return false;
    mig_close(&mig, false);
    return mig.current;
}

void compute_mode_forget(unsigned gpu) {
    char path[PATH_SIZE];
    unlink(file_of(path, gpu));
}

EXPORT nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t device, unsigned *mode) {
    const struct gpu *gpu;
    unsigned index, gi, ci;
    nvmlReturn_t result = device_any(device, &gpu);
    if (result != NVML_SUCCESS) return result;
    if (!mode) return NVML_ERROR_INVALID_ARGUMENT;
    bool whole = !device_is_mig(device, &index, &gi, &ci) && !in_mig_mode(gpu->index);
    *mode = whole ? kept(gpu->index) : NVML_COMPUTEMODE_DEFAULT;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceSetComputeMode(nvmlDevice_t device, unsigned mode) {
    const struct gpu *gpu;
    unsigned index, gi, ci;
    char path[PATH_SIZE], now[128];
    nvmlReturn_t result = device_any(device, &gpu);
    if (result != NVML_SUCCESS) return result;
    if (mode > NVML_COMPUTEMODE_EXCLUSIVE_PROCESS) return NVML_ERROR_INVALID_ARGUMENT;
    if (!host_is_root()) return NVML_ERROR_NO_PERMISSION;
    if (mode == NVML_COMPUTEMODE_EXCLUSIVE_THREAD) return NVML_ERROR_NOT_SUPPORTED; /* "support removed" */
    if (device_is_mig(device, &index, &gi, &ci))
        return mode == NVML_COMPUTEMODE_DEFAULT ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
    if (in_mig_mode(gpu->index)) return NVML_ERROR_NOT_SUPPORTED;
    mkdir(host_path(path, FOLDER), 0755);
    FILE *file = fopen(file_of(path, gpu->index), "we");
    if (!file) return NVML_ERROR_UNKNOWN;
    host_boot_marker(now, sizeof now);
    fprintf(file, "%u %s\n", mode, now);
    return fclose(file) == 0 ? NVML_SUCCESS : NVML_ERROR_UNKNOWN;
}
