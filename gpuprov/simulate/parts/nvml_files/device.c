/* Handles, and what identifies a GPU. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "sim.h"

struct sim_device {
    char kind;
};

/* The address of an element is the handle: first the GPUs, then all MIG devices that could be. */
static struct sim_device handles[MAX_GPUS + MAX_GPUS * MAX_GI * MAX_CI];

nvmlDevice_t device_handle(unsigned gpu) { return &handles[gpu]; }

nvmlDevice_t device_mig_handle(unsigned gpu, unsigned gi, unsigned ci) {
    return &handles[MAX_GPUS + (gpu * MAX_GI + gi) * MAX_CI + ci];
}

static bool is_handle(nvmlDevice_t device) {
    return device >= handles && device < handles + sizeof handles / sizeof *handles;
}

bool device_is_mig(nvmlDevice_t device, unsigned *gpu, unsigned *gi, unsigned *ci) {
    if (!is_handle(device) || device < handles + MAX_GPUS) return false;
    unsigned at = (unsigned)(device - handles) - MAX_GPUS;
    *ci = at % MAX_CI;
    *gi = at / MAX_CI % MAX_GI;
    *gpu = at / MAX_CI / MAX_GI;
    return true;
}

static nvmlReturn_t use(unsigned index, const struct gpu **gpu) {
    if (index >= config.gpu_count) return NVML_ERROR_INVALID_ARGUMENT;
    *gpu = &config.gpus[index];
    return host_gpu_lost(index) ? NVML_ERROR_GPU_IS_LOST : NVML_SUCCESS;
}

nvmlReturn_t device_any(nvmlDevice_t device, const struct gpu **gpu) {
    unsigned index, gi, ci;
    if (!initialized()) return NVML_ERROR_UNINITIALIZED;
    if (!is_handle(device)) return NVML_ERROR_INVALID_ARGUMENT;
    if (device_is_mig(device, &index, &gi, &ci)) return use(index, gpu);
    return use((unsigned)(device - handles), gpu);
}

nvmlReturn_t device_gpu(nvmlDevice_t device, const struct gpu **gpu) {
    unsigned index, gi, ci;
    if (!initialized()) return NVML_ERROR_UNINITIALIZED;
    if (device_is_mig(device, &index, &gi, &ci)) return NVML_ERROR_NOT_SUPPORTED; /* not for MIG devices */
    return device_any(device, gpu);
}

EXPORT nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *count) {
    if (!initialized()) return NVML_ERROR_UNINITIALIZED;
    if (!count) return NVML_ERROR_INVALID_ARGUMENT;
    *count = config.gpu_count;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetCount(unsigned *count) { return nvmlDeviceGetCount_v2(count); }

EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *device) {
    const struct gpu *gpu;
    if (!initialized()) return NVML_ERROR_UNINITIALIZED;
    if (!device) return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t result = use(index, &gpu);
    if (result == NVML_SUCCESS) *device = device_handle(index);
    return result;
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned index, nvmlDevice_t *device) {
    return nvmlDeviceGetHandleByIndex_v2(index, device);
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *address, nvmlDevice_t *device) {
    unsigned domain = 0, bus, slot;
    if (!initialized()) return NVML_ERROR_UNINITIALIZED;
    if (!address || !device) return NVML_ERROR_INVALID_ARGUMENT;
    if (sscanf(address, "%x:%x:%x", &domain, &bus, &slot) != 3) {
        domain = 0;
        if (sscanf(address, "%x:%x", &bus, &slot) != 2) return NVML_ERROR_INVALID_ARGUMENT;
    }
    for (unsigned i = 0; i < config.gpu_count; i++) {
        const struct gpu *gpu = &config.gpus[i];
        if (gpu->domain == domain && gpu->bus == bus && gpu->slot == slot) return nvmlDeviceGetHandleByIndex_v2(i, device);
    }
    return NVML_ERROR_NOT_FOUND;
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *address, nvmlDevice_t *device) {
    return nvmlDeviceGetHandleByPciBusId_v2(address, device);
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleBySerial(const char *serial, nvmlDevice_t *device) {
    if (!initialized()) return NVML_ERROR_UNINITIALIZED;
    if (!serial || !device) return NVML_ERROR_INVALID_ARGUMENT;
    for (unsigned i = 0; i < config.gpu_count; i++)
        if (!strcmp(config.gpus[i].serial, serial)) return nvmlDeviceGetHandleByIndex_v2(i, device);
    return NVML_ERROR_NOT_FOUND;
}

/* The UUID of a MIG device finds that device. */
static nvmlReturn_t find_mig(const char *uuid, nvmlDevice_t *device) {
    struct mig mig;
    for (unsigned gpu = 0; gpu < config.gpu_count; gpu++) {
        if (mig_open(gpu, false, &mig) != NVML_SUCCESS) continue;
        mig_close(&mig, false);
        for (unsigned gi = 0; gi < MAX_GI; gi++)
            for (unsigned ci = 0; ci < MAX_CI; ci++)
                if (mig.gi[gi].used && mig.gi[gi].ci[ci].used && !strcasecmp(mig.gi[gi].ci[ci].uuid, uuid)) {
                    *device = device_mig_handle(gpu, gi, ci);
                    return NVML_SUCCESS;
                }
    }
    return NVML_ERROR_NOT_FOUND;
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device) {
    if (!initialized()) return NVML_ERROR_UNINITIALIZED;
    if (!uuid || !device) return NVML_ERROR_INVALID_ARGUMENT;
    for (unsigned i = 0; i < config.gpu_count; i++)
        if (!strcasecmp(config.gpus[i].uuid, uuid)) return nvmlDeviceGetHandleByIndex_v2(i, device);
    return find_mig(uuid, device);
}
