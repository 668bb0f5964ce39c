/* MIG mode of a GPU. */
#include <stdlib.h>
#include <string.h>

#include "settings.h"

EXPORT nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned *current, unsigned *pending) {
    const struct gpu *gpu;
    struct mig mig;
    nvmlReturn_t result = device_gpu(device, &gpu);
    if (result != NVML_SUCCESS) return result;
    if (!current || !pending) return NVML_ERROR_INVALID_ARGUMENT;
    result = mig_open(gpu->index, false, &mig);
    if (result != NVML_SUCCESS) return result;
    *current = mig.current;
    *pending = mig.pending;
    return mig_close(&mig, false);
}

static bool empty(const struct mig *mig) {
    for (unsigned gi = 0; gi < MAX_GI; gi++)
        if (mig->gi[gi].used) return false;
    return true;
}

/* Ampere changes its mode by a GPU reset, which the driver tries at once and a client prevents: the mode is then pending.
   Newer GPUs change it without a reset. `activation` is what came of trying. */
EXPORT nvmlReturn_t nvmlDeviceSetMigMode(nvmlDevice_t device, unsigned mode, nvmlReturn_t *activation) {
    const struct gpu *gpu;
    struct mig mig;
    nvmlReturn_t result = device_gpu(device, &gpu);
    if (result != NVML_SUCCESS) return result;
    if (!activation || mode > NVML_FEATURE_ENABLED) return NVML_ERROR_INVALID_ARGUMENT;
    *activation = NVML_SUCCESS;
    result = mig_open(gpu->index, true, &mig);
    if (result != NVML_SUCCESS) return result;
    if (!mode && !empty(&mig)) return mig_close(&mig, false), NVML_ERROR_IN_USE;
    bool reset = config_number("architecture", 0) == NVML_ARCH_AMPERE;
    bool changed = mig.current != (bool)mode;
    mig.pending = mode;
    if (mig.current != mig.pending && reset && host_gpu_has_clients(gpu->index))
        *activation = NVML_ERROR_IN_USE;
    else
        mig.current = mig.pending;
    if (mig.current == mode) compute_mode_forget(gpu->index);
    if (reset && changed && mig.current == mode) settings_forget(gpu->index);
    return mig_close(&mig, true);
}

EXPORT nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned *count) {
    const struct gpu *gpu;
    nvmlReturn_t result = device_gpu(device, &gpu);
    if (result != NVML_SUCCESS) return result;
    if (!count) return NVML_ERROR_INVALID_ARGUMENT;
    *count = 0; /* what the NVML of a GPU without MIG says */
    for (unsigned i = 0; i < config.profile_count; i++)
        if (config.profiles[i].max_count > *count) *count = config.profiles[i].max_count;
    return NVML_SUCCESS;
}
