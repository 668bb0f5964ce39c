/* GPU instances: create, find, tell, destroy. */
#include <stdlib.h>
#include <string.h>

#include "mig_handles.h"
#include "sim.h"

static struct sim_gpu_instance {
    char kind;
} handles[MAX_GPUS * MAX_GI];

static nvmlGpuInstance_t handle_of(unsigned gpu, unsigned gi) { return &handles[gpu * MAX_GI + gi]; }

nvmlReturn_t gi_open(nvmlGpuInstance_t instance, bool write, struct mig *mig, unsigned *gi) {
    if (!initialized()) return NVML_ERROR_UNINITIALIZED;
    if (instance < handles || instance >= handles + MAX_GPUS * MAX_GI) return NVML_ERROR_INVALID_ARGUMENT;
    unsigned at = (unsigned)(instance - handles);
    *gi = at % MAX_GI;
    if (host_gpu_lost(at / MAX_GI)) return NVML_ERROR_GPU_IS_LOST;
    nvmlReturn_t result = mig_open(at / MAX_GI, write, mig);
    if (result == NVML_SUCCESS && !mig->gi[*gi].used) {
        mig_close(mig, false);
        return NVML_ERROR_NOT_FOUND;
    }
    return result;
}

/* The GPU's state where MIG is on; else NOT_SUPPORTED, as the real NVML says. */
static nvmlReturn_t open_enabled(nvmlDevice_t device, bool write, struct mig *mig) {
    const struct gpu *gpu;
    nvmlReturn_t result = device_gpu(device, &gpu);
    if (result == NVML_SUCCESS) result = mig_open(gpu->index, write, mig);
    if (result == NVML_SUCCESS && !mig->current) {
        mig_close(mig, false);
        return NVML_ERROR_NOT_SUPPORTED;
    }
    return result;
}

static nvmlReturn_t create(nvmlDevice_t device, unsigned smi_id, const nvmlPlacement_t *placement,
                           nvmlGpuInstance_t *instance) {
    struct mig mig;
    nvmlReturn_t result = open_enabled(device, true, &mig);
    if (result != NVML_SUCCESS) return result;
    const struct profile *profile = profile_by_smi_id(smi_id);
    unsigned start = placement ? placement->start : 0;
    if (!profile || !instance || (placement && placement->size != profile->size))
        return mig_close(&mig, false), NVML_ERROR_INVALID_ARGUMENT;
    if (placement ? !gi_fits(&mig, profile, start) : !gi_choose(&mig, profile, &start))
        return mig_close(&mig, false), NVML_ERROR_INSUFFICIENT_RESOURCES;
    unsigned id = gi_id(profile, start);
    mig.gi[id] = (struct gpu_instance){.used = true, .profile = profile->nvml_id, .start = start};
    *instance = handle_of(mig.gpu, id);
    return mig_close(&mig, true);
}

EXPORT nvmlReturn_t nvmlDeviceCreateGpuInstance(nvmlDevice_t device, unsigned smi_id, nvmlGpuInstance_t *instance) {
    return create(device, smi_id, NULL, instance);
}

EXPORT nvmlReturn_t nvmlDeviceCreateGpuInstanceWithPlacement(nvmlDevice_t device, unsigned smi_id,
                                                             const nvmlPlacement_t *placement,
                                                             nvmlGpuInstance_t *instance) {
    return placement ? create(device, smi_id, placement, instance) : NVML_ERROR_INVALID_ARGUMENT;
}

EXPORT nvmlReturn_t nvmlGpuInstanceDestroy(nvmlGpuInstance_t instance) {
    struct mig mig;
    unsigned gi;
    nvmlReturn_t result = gi_open(instance, true, &mig, &gi);
    if (result != NVML_SUCCESS) return result;
    for (unsigned id = 0; id < MAX_CI; id++)
        if (mig.gi[gi].ci[id].used) return mig_close(&mig, false), NVML_ERROR_IN_USE;
    if (gi_has_clients(mig.gpu, gi)) return mig_close(&mig, false), NVML_ERROR_IN_USE;
    mig.gi[gi].used = false;
    return mig_close(&mig, true);
}

/* `instances` has room for as many as the profile can have. */
EXPORT nvmlReturn_t nvmlDeviceGetGpuInstances(nvmlDevice_t device, unsigned smi_id, nvmlGpuInstance_t *instances,
                                              unsigned *count) {
    struct mig mig;
    nvmlReturn_t result = open_enabled(device, false, &mig);
    if (result != NVML_SUCCESS) return result;
    mig_close(&mig, false);
    const struct profile *profile = profile_by_smi_id(smi_id);
    if (!profile || !instances || !count) return NVML_ERROR_INVALID_ARGUMENT;
    *count = 0;
    for (unsigned gi = 0; gi < MAX_GI; gi++)
        if (mig.gi[gi].used && mig.gi[gi].profile == profile->nvml_id) instances[(*count)++] = handle_of(mig.gpu, gi);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceById(nvmlDevice_t device, unsigned id, nvmlGpuInstance_t *instance) {
    struct mig mig;
    nvmlReturn_t result = open_enabled(device, false, &mig);
    if (result != NVML_SUCCESS) return result;
    mig_close(&mig, false);
    if (!instance) return NVML_ERROR_INVALID_ARGUMENT;
    if (id >= MAX_GI || !mig.gi[id].used) return NVML_ERROR_NOT_FOUND;
    *instance = handle_of(mig.gpu, id);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlGpuInstanceGetInfo(nvmlGpuInstance_t instance, nvmlGpuInstanceInfo_t *info) {
    struct mig mig;
    unsigned gi;
    nvmlReturn_t result = gi_open(instance, false, &mig, &gi);
    if (result != NVML_SUCCESS) return result;
    mig_close(&mig, false);
    if (!info) return NVML_ERROR_INVALID_ARGUMENT;
    const struct profile *profile = profile_by_nvml_id(mig.gi[gi].profile);
    *info = (nvmlGpuInstanceInfo_t){device_handle(mig.gpu), gi, profile->smi_id, {mig.gi[gi].start, profile->size}};
    return NVML_SUCCESS;
}
