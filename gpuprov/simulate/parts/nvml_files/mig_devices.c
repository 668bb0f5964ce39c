/* MIG devices: each compute instance is a device of its own to CUDA and NVML. */
#include <stdlib.h>
#include <string.h>

#include "sim.h"

EXPORT nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned *is_mig) {
    const struct gpu *gpu;
    unsigned index, gi, ci;
    nvmlReturn_t result = device_any(device, &gpu);
    if (result != NVML_SUCCESS) return result;
    if (!is_mig) return NVML_ERROR_INVALID_ARGUMENT;
    *is_mig = device_is_mig(device, &index, &gi, &ci);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned index, nvmlDevice_t *found) {
    const struct gpu *gpu;
    struct mig mig;
    nvmlReturn_t result = device_gpu(device, &gpu);
    if (result == NVML_SUCCESS) result = mig_open(gpu->index, false, &mig);
    if (result != NVML_SUCCESS) return result;
    mig_close(&mig, false);
    if (!found) return NVML_ERROR_INVALID_ARGUMENT;
    unsigned at = 0;
    for (unsigned gi = 0; gi < MAX_GI; gi++)
        for (unsigned ci = 0; ci < MAX_CI; ci++)
            if (mig.gi[gi].used && mig.gi[gi].ci[ci].used && at++ == index) {
                *found = device_mig_handle(gpu->index, gi, ci);
                return NVML_SUCCESS;
            }
    return NVML_ERROR_NOT_FOUND;
}

EXPORT nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t device, nvmlDevice_t *parent) {
    const struct gpu *gpu;
    unsigned index, gi, ci;
    nvmlReturn_t result = device_any(device, &gpu);
    if (result != NVML_SUCCESS) return result;
    if (!parent || !device_is_mig(device, &index, &gi, &ci)) return NVML_ERROR_INVALID_ARGUMENT;
    *parent = device_handle(index);
    return NVML_SUCCESS;
}

static nvmlReturn_t place(nvmlDevice_t device, unsigned *gi, unsigned *ci, struct mig *mig) {
    const struct gpu *gpu;
    unsigned index;
    nvmlReturn_t result = device_any(device, &gpu);
    if (result != NVML_SUCCESS) return result;
    if (!device_is_mig(device, &index, gi, ci)) return NVML_ERROR_NOT_SUPPORTED;
    result = mig_open(index, false, mig);
    if (result != NVML_SUCCESS) return result;
    mig_close(mig, false);
    return mig->gi[*gi].used && mig->gi[*gi].ci[*ci].used ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND;
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t device, unsigned *id) {
    struct mig mig;
    unsigned ci;
    return id ? place(device, id, &ci, &mig) : NVML_ERROR_INVALID_ARGUMENT;
}

EXPORT nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t device, unsigned *id) {
    struct mig mig;
    unsigned gi;
    return id ? place(device, &gi, id, &mig) : NVML_ERROR_INVALID_ARGUMENT;
}

EXPORT nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t device, nvmlDeviceAttributes_t *attributes) {
    struct mig mig;
    unsigned gi, ci;
    nvmlReturn_t result = place(device, &gi, &ci, &mig);
    if (result != NVML_SUCCESS) return result;
    if (!attributes) return NVML_ERROR_INVALID_ARGUMENT;
    const struct profile *profile = profile_by_nvml_id(mig.gi[gi].profile);
    unsigned slices = ci_slices(mig.gi[gi].ci[ci].profile);
    *attributes = (nvmlDeviceAttributes_t){
        .multiprocessorCount = profile->sm * slices / profile->slices,
        .sharedCopyEngineCount = profile->slices,
        .sharedDecoderCount = profile->media ? 1 : profile->slices / 2,
        .sharedJpegCount = profile->media,
        .sharedOfaCount = profile->media,
        .gpuInstanceSliceCount = profile->slices,
        .computeInstanceSliceCount = slices,
        .memorySizeMB = profile->memory_mib,
    };
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetAttributes(nvmlDevice_t device, nvmlDeviceAttributes_t *attributes) {
    return nvmlDeviceGetAttributes_v2(device, attributes);
}
