/* Which GPU instance profiles a GPU has, where they can go, and how many more fit. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim.h"

static nvmlReturn_t find(nvmlDevice_t device, unsigned nvml_id, const struct profile **profile) {
    const struct gpu *gpu;
    nvmlReturn_t result = device_gpu(device, &gpu);
    if (result != NVML_SUCCESS) return result;
    if (nvml_id >= MAX_PROFILES) return NVML_ERROR_INVALID_ARGUMENT;
    *profile = profile_by_nvml_id(nvml_id);
    return *profile ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

/* The catalogue knows no engines: as many copy engines as slices, a decoder for two of them, the media extensions once. */
EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfo(nvmlDevice_t device, unsigned nvml_id,
                                                        nvmlGpuInstanceProfileInfo_t *info) {
    const struct profile *profile;
    nvmlReturn_t result = find(device, nvml_id, &profile);
    if (result != NVML_SUCCESS) return result;
    if (!info) return NVML_ERROR_INVALID_ARGUMENT;
    *info = (nvmlGpuInstanceProfileInfo_t){
        .id = profile->smi_id,
        .sliceCount = profile->slices,
        .instanceCount = profile->max_count,
        .multiprocessorCount = profile->sm,
        .copyEngineCount = profile->slices,
        .decoderCount = profile->media ? 1 : profile->slices / 2,
        .jpegCount = profile->media,
        .ofaCount = profile->media,
        .memorySizeMB = profile->memory_mib,
    };
    return NVML_SUCCESS;
}

static void fill_v2(nvmlGpuInstanceProfileInfo_v2_t *to, const nvmlGpuInstanceProfileInfo_t *from) {
    memcpy(&to->id, from, offsetof(nvmlGpuInstanceProfileInfo_t, memorySizeMB));
    to->memorySizeMB = from->memorySizeMB;
}

static void fill_v3(nvmlGpuInstanceProfileInfo_v3_t *to, const nvmlGpuInstanceProfileInfo_t *from) {
    to->id = from->id;
    memcpy(&to->sliceCount, &from->sliceCount,
           offsetof(nvmlGpuInstanceProfileInfo_t, memorySizeMB) - offsetof(nvmlGpuInstanceProfileInfo_t, sliceCount));
    to->memorySizeMB = from->memorySizeMB;
    to->capabilities = from->isP2pSupported;
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfoV(nvmlDevice_t device, unsigned nvml_id, void *answer) {
    nvmlGpuInstanceProfileInfo_t info;
    nvmlGpuInstanceProfileInfo_v2_t *v2 = answer;
    nvmlGpuInstanceProfileInfo_v3_t *v3 = answer;
    nvmlReturn_t result = nvmlDeviceGetGpuInstanceProfileInfo(device, nvml_id, &info);
    if (result != NVML_SUCCESS) return result;
    if (!answer) return NVML_ERROR_INVALID_ARGUMENT;
    const char *name = profile_by_nvml_id(nvml_id)->name;
    if (v2->version == NVML_STRUCT_VERSION(sizeof *v2, 2)) {
        fill_v2(v2, &info);
        snprintf(v2->name, sizeof v2->name, "MIG %s", name);
    } else if (v3->version == NVML_STRUCT_VERSION(sizeof *v3, 3)) {
        fill_v3(v3, &info);
        snprintf(v3->name, sizeof v3->name, "MIG %s", name);
    } else {
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    }
    return NVML_SUCCESS;
}

static nvmlReturn_t find_by_smi_id(nvmlDevice_t device, unsigned smi_id, const struct gpu **gpu,
                                   const struct profile **profile) {
    nvmlReturn_t result = device_gpu(device, gpu);
    if (result != NVML_SUCCESS) return result;
    if (!mig_capable()) return NVML_ERROR_NOT_SUPPORTED;
    *profile = profile_by_smi_id(smi_id);
    return *profile ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

/* All placements of the profile, whatever is taken: `nvidia-smi mig -lgipp` does not look at what is in use. */
EXPORT nvmlReturn_t nvmlDeviceGetGpuInstancePossiblePlacements_v2(nvmlDevice_t device, unsigned smi_id,
                                                                  nvmlPlacement_t *placements, unsigned *count) {
    const struct gpu *gpu;
    const struct profile *profile;
    nvmlReturn_t result = find_by_smi_id(device, smi_id, &gpu, &profile);
    if (result != NVML_SUCCESS) return result;
    if (!count) return NVML_ERROR_INVALID_ARGUMENT;
    unsigned room = *count;
    *count = profile->start_count;
    if (!placements) return NVML_SUCCESS;
    if (room < profile->start_count) return NVML_ERROR_INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < profile->start_count; i++)
        placements[i] = (nvmlPlacement_t){profile->starts[i], profile->size};
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstancePossiblePlacements(nvmlDevice_t device, unsigned smi_id,
                                                               nvmlPlacement_t *placements, unsigned *count) {
    return nvmlDeviceGetGpuInstancePossiblePlacements_v2(device, smi_id, placements, count);
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceRemainingCapacity(nvmlDevice_t device, unsigned smi_id, unsigned *count) {
    const struct gpu *gpu;
    const struct profile *profile;
    struct mig mig;
    nvmlReturn_t result = find_by_smi_id(device, smi_id, &gpu, &profile);
    if (result != NVML_SUCCESS) return result;
    if (!count) return NVML_ERROR_INVALID_ARGUMENT;
    result = mig_open(gpu->index, false, &mig);
    if (result != NVML_SUCCESS) return result;
    *count = mig.current ? gi_capacity(&mig, profile) : 0;
    return mig_close(&mig, false);
}
