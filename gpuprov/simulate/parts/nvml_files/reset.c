/* `nvidia-smi --gpu-reset`, as nvidia-smi 535 and 550 ask for it: for root, and only for GPUs that no process has open. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "settings.h"

#define ADDRESS_SIZE 32

struct group {
    unsigned count;
    unsigned gpus[MAX_GPUS];
};

/* The one that shows the console: none. */
nvmlReturn_t reset_is_primary(nvmlDevice_t device, unsigned *is_primary) {
    const struct gpu *gpu;
    nvmlReturn_t result = device_gpu(device, &gpu);
    if (result == NVML_SUCCESS) *is_primary = 0;
    return result;
}

nvmlReturn_t reset_fabric(unsigned *state) {
    *state = 0;
    return NVML_SUCCESS;
}

/* What must be reset together: what was asked for. */
nvmlReturn_t reset_group_make(void **group, const nvmlDevice_t *devices, unsigned count) {
    const struct gpu *gpu;
    nvmlReturn_t result = NVML_SUCCESS;
    struct group *made = calloc(1, sizeof *made);
    if (!made || count > MAX_GPUS) result = NVML_ERROR_UNKNOWN;
    for (unsigned i = 0; result == NVML_SUCCESS && i < count; i++) {
        result = device_gpu(devices[i], &gpu);
        if (result == NVML_SUCCESS) made->gpus[made->count++] = gpu->index;
    }
    if (result != NVML_SUCCESS) return free(made), result;
    *group = made;
    return NVML_SUCCESS;
}

/* `addresses` has room for all GPUs. */
nvmlReturn_t reset_group_list(void *group, char *addresses[], unsigned *count) {
    const struct group *given = group;
    for (unsigned i = 0; i < given->count; i++) {
        const struct gpu *gpu = &config.gpus[given->gpus[i]];
        snprintf(addresses[i], ADDRESS_SIZE, "%08X:%02X:%02X.0", gpu->domain, gpu->bus, gpu->slot);
    }
    *count = given->count;
    return NVML_SUCCESS;
}

nvmlReturn_t reset_group_free(void *group) {
    free(group);
    return NVML_SUCCESS;
}

/* Faults that a reset ends. */
static const char *const ENDED[] = {"gpu-reset-required", "gpu-row-pending", "gpu-ecc-errors", NULL};

static nvmlReturn_t reset(nvmlDevice_t device) {
    const struct gpu *gpu;
    struct mig mig;
    nvmlReturn_t result = device_gpu(device, &gpu);
    if (result != NVML_SUCCESS) return result;
    if (host_gpu_has_clients(gpu->index)) return NVML_ERROR_IN_USE;
    if (host_gpu_stuck(gpu->index)) return NVML_ERROR_UNKNOWN;
    for (const char *const *name = ENDED; *name; name++) host_reset_ends(*name, gpu->index);
    compute_mode_forget(gpu->index);
    settings_forget(gpu->index);
    result = mig_open(gpu->index, true, &mig);
    if (result == NVML_ERROR_NOT_SUPPORTED) return NVML_SUCCESS; /* no MIG */
    if (result != NVML_SUCCESS) return result;
    mig_reset(&mig);
    return mig_close(&mig, true);
}

/* UNKNOWN, where nvidia-smi shall look at the results. */
nvmlReturn_t reset_devices(unsigned count, const nvmlDevice_t *devices, nvmlReturn_t *results, unsigned *failed) {
    if (!host_is_root()) return NVML_ERROR_NO_PERMISSION;
    *failed = 0;
    for (unsigned i = 0; i < count; i++) {
        results[i] = reset(devices[i]);
        *failed += results[i] != NVML_SUCCESS;
    }
    return *failed ? NVML_ERROR_UNKNOWN : NVML_SUCCESS;
}
