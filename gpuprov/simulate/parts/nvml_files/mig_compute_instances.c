/* Compute instances: profiles, create, find, tell, destroy. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mig_handles.h"
#include "sim.h"

static struct sim_compute_instance {
    char kind;
} handles[MAX_GPUS * MAX_GI * MAX_CI];

static nvmlComputeInstance_t handle_of(unsigned gpu, unsigned gi, unsigned ci) {
    return &handles[(gpu * MAX_GI + gi) * MAX_CI + ci];
}

static bool new_uuid(char uuid[48]) {
    char text[40] = "";
    FILE *file = fopen("/proc/sys/kernel/random/uuid", "re");
    if (!file) return false;
    bool got = fgets(text, sizeof text, file) != NULL;
    fclose(file);
    text[strcspn(text, "\n")] = '\0';
    snprintf(uuid, 48, "MIG-%s", text);
    return got;
}

static const struct profile *profile_of(const struct mig *mig, unsigned gi) {
    return profile_by_nvml_id(mig->gi[gi].profile);
}

/* A copy of the state, and the profile of the GPU instance. */
static nvmlReturn_t look(nvmlGpuInstance_t instance, struct mig *mig, unsigned *gi, const struct profile **profile) {
    nvmlReturn_t result = gi_open(instance, false, mig, gi);
    if (result != NVML_SUCCESS) return result;
    *profile = profile_of(mig, *gi);
    return mig_close(mig, false);
}

EXPORT nvmlReturn_t nvmlGpuInstanceGetComputeInstanceProfileInfo(nvmlGpuInstance_t instance, unsigned ci_profile,
                                                                 unsigned engine, nvmlComputeInstanceProfileInfo_t *info) {
    struct mig mig;
    unsigned gi;
    const struct profile *profile;
    nvmlReturn_t result = look(instance, &mig, &gi, &profile);
    if (result != NVML_SUCCESS) return result;
    if (!info || engine != 0) return NVML_ERROR_INVALID_ARGUMENT;
    if (!ci_count(profile, ci_profile)) return NVML_ERROR_NOT_SUPPORTED;
    *info = (nvmlComputeInstanceProfileInfo_t){
        .id = ci_profile,
        .sliceCount = ci_slices(ci_profile),
        .instanceCount = ci_count(profile, ci_profile),
        .multiprocessorCount = profile->sm * ci_slices(ci_profile) / profile->slices,
        .sharedCopyEngineCount = profile->slices,
        .sharedDecoderCount = profile->media ? 1 : profile->slices / 2,
        .sharedJpegCount = profile->media,
        .sharedOfaCount = profile->media,
    };
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlGpuInstanceGetComputeInstanceProfileInfoV(nvmlGpuInstance_t instance, unsigned ci_profile,
                                                                  unsigned engine, void *answer) {
    struct mig mig;
    unsigned gi;
    const struct profile *profile;
    nvmlComputeInstanceProfileInfo_t info;
    nvmlComputeInstanceProfileInfo_v2_t *v2 = answer; /* version 3 only adds capabilities at its end */
    nvmlReturn_t result = nvmlGpuInstanceGetComputeInstanceProfileInfo(instance, ci_profile, engine, &info);
    if (result == NVML_SUCCESS) result = look(instance, &mig, &gi, &profile);
    if (result != NVML_SUCCESS) return result;
    if (!answer) return NVML_ERROR_INVALID_ARGUMENT;
    bool third = v2->version == NVML_STRUCT_VERSION(sizeof(nvmlComputeInstanceProfileInfo_v3_t), 3);
    if (!third && v2->version != NVML_STRUCT_VERSION(sizeof *v2, 2)) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    memcpy(&v2->id, &info, sizeof info);
    char name[48];
    ci_name(name, sizeof name, profile, ci_profile);
    snprintf(v2->name, sizeof v2->name, "MIG %s", name);
    if (third) ((nvmlComputeInstanceProfileInfo_v3_t *)answer)->capabilities = 0;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlGpuInstanceGetComputeInstancePossiblePlacements(nvmlGpuInstance_t instance, unsigned ci_profile,
                                                                        nvmlPlacement_t *placements, unsigned *count) {
    struct mig mig;
    unsigned gi;
    const struct profile *profile;
    nvmlReturn_t result = look(instance, &mig, &gi, &profile);
    if (result != NVML_SUCCESS) return result;
    unsigned known = ci_count(profile, ci_profile), size = ci_slices(ci_profile), room = count ? *count : 0;
    if (!count || !known) return NVML_ERROR_INVALID_ARGUMENT;
    *count = known;
    if (!placements) return NVML_SUCCESS;
    if (room < known) return NVML_ERROR_INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < known; i++) placements[i] = (nvmlPlacement_t){i * size, size};
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlGpuInstanceGetComputeInstanceRemainingCapacity(nvmlGpuInstance_t instance, unsigned ci_profile,
                                                                       unsigned *count) {
    struct mig mig;
    unsigned gi;
    const struct profile *profile;
    nvmlReturn_t result = look(instance, &mig, &gi, &profile);
    if (result != NVML_SUCCESS) return result;
    unsigned size = ci_slices(ci_profile);
    if (!count || !ci_count(profile, ci_profile)) return NVML_ERROR_INVALID_ARGUMENT;
    *count = 0;
    for (unsigned i = 0; i < ci_count(profile, ci_profile); i++) *count += ci_fits(&mig.gi[gi], profile, i * size, size);
    return NVML_SUCCESS;
}

static nvmlReturn_t create(nvmlGpuInstance_t instance, unsigned ci_profile, const nvmlPlacement_t *placement,
                           nvmlComputeInstance_t *made) {
    struct mig mig;
    unsigned gi, id = 0;
    nvmlReturn_t result = gi_open(instance, true, &mig, &gi);
    if (result != NVML_SUCCESS) return result;
    const struct profile *profile = profile_of(&mig, gi);
    struct gpu_instance *parent = &mig.gi[gi];
    unsigned size = ci_slices(ci_profile), start = placement ? placement->start : 0;
    if (!made || !ci_count(profile, ci_profile) || (placement && placement->size != size))
        return mig_close(&mig, false), NVML_ERROR_INVALID_ARGUMENT;
    while (id < MAX_CI && parent->ci[id].used) id++;
    bool fits = placement ? ci_fits(parent, profile, start, size) : ci_choose(parent, profile, ci_profile, &start);
    if (!fits || id == MAX_CI) return mig_close(&mig, false), NVML_ERROR_INSUFFICIENT_RESOURCES;
    parent->ci[id] = (struct compute_instance){.used = true, .profile = ci_profile, .start = start, .size = size};
    if (!new_uuid(parent->ci[id].uuid)) return mig_close(&mig, false), NVML_ERROR_UNKNOWN;
    *made = handle_of(mig.gpu, gi, id);
    return mig_close(&mig, true);
}

EXPORT nvmlReturn_t nvmlGpuInstanceCreateComputeInstance(nvmlGpuInstance_t instance, unsigned ci_profile,
                                                         nvmlComputeInstance_t *made) {
    return create(instance, ci_profile, NULL, made);
}

EXPORT nvmlReturn_t nvmlGpuInstanceCreateComputeInstanceWithPlacement(nvmlGpuInstance_t instance, unsigned ci_profile,
                                                                      const nvmlPlacement_t *placement,
                                                                      nvmlComputeInstance_t *made) {
    return placement ? create(instance, ci_profile, placement, made) : NVML_ERROR_INVALID_ARGUMENT;
}

static nvmlReturn_t open_ci(nvmlComputeInstance_t instance, bool write, struct mig *mig, unsigned *gi, unsigned *ci) {
    if (!initialized()) return NVML_ERROR_UNINITIALIZED;
    if (instance < handles || instance >= handles + MAX_GPUS * MAX_GI * MAX_CI) return NVML_ERROR_INVALID_ARGUMENT;
    unsigned at = (unsigned)(instance - handles), gpu = at / MAX_CI / MAX_GI;
    *ci = at % MAX_CI;
    *gi = at / MAX_CI % MAX_GI;
    if (host_gpu_lost(gpu)) return NVML_ERROR_GPU_IS_LOST;
    nvmlReturn_t result = mig_open(gpu, write, mig);
    if (result == NVML_SUCCESS && !(mig->gi[*gi].used && mig->gi[*gi].ci[*ci].used))
        return mig_close(mig, false), NVML_ERROR_NOT_FOUND;
    return result;
}

EXPORT nvmlReturn_t nvmlComputeInstanceDestroy(nvmlComputeInstance_t instance) {
    struct mig mig;
    unsigned gi, ci;
    nvmlReturn_t result = open_ci(instance, true, &mig, &gi, &ci);
    if (result != NVML_SUCCESS) return result;
    if (ci_has_clients(mig.gpu, gi, ci)) return mig_close(&mig, false), NVML_ERROR_IN_USE;
    mig.gi[gi].ci[ci].used = false;
    return mig_close(&mig, true);
}

EXPORT nvmlReturn_t nvmlGpuInstanceGetComputeInstances(nvmlGpuInstance_t instance, unsigned ci_profile,
                                                       nvmlComputeInstance_t *instances, unsigned *count) {
    struct mig mig;
    unsigned gi;
    const struct profile *profile;
    nvmlReturn_t result = look(instance, &mig, &gi, &profile);
    if (result != NVML_SUCCESS) return result;
    if (!instances || !count || !ci_count(profile, ci_profile)) return NVML_ERROR_INVALID_ARGUMENT;
    *count = 0;
    for (unsigned id = 0; id < MAX_CI; id++)
        if (mig.gi[gi].ci[id].used && mig.gi[gi].ci[id].profile == ci_profile)
            instances[(*count)++] = handle_of(mig.gpu, gi, id);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlGpuInstanceGetComputeInstanceById(nvmlGpuInstance_t instance, unsigned id,
                                                          nvmlComputeInstance_t *found) {
    struct mig mig;
    unsigned gi;
    const struct profile *profile;
    nvmlReturn_t result = look(instance, &mig, &gi, &profile);
    if (result != NVML_SUCCESS) return result;
    if (!found) return NVML_ERROR_INVALID_ARGUMENT;
    if (id >= MAX_CI || !mig.gi[gi].ci[id].used) return NVML_ERROR_NOT_FOUND;
    *found = handle_of(mig.gpu, gi, id);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlComputeInstanceGetInfo_v2(nvmlComputeInstance_t instance, nvmlComputeInstanceInfo_t *info) {
    struct mig mig;
    unsigned gi, ci;
    nvmlGpuInstance_t parent;
    nvmlReturn_t result = open_ci(instance, false, &mig, &gi, &ci);
    if (result != NVML_SUCCESS) return result;
    mig_close(&mig, false);
    if (!info) return NVML_ERROR_INVALID_ARGUMENT;
    result = nvmlDeviceGetGpuInstanceById(device_handle(mig.gpu), gi, &parent);
    if (result != NVML_SUCCESS) return result;
    const struct compute_instance *held = &mig.gi[gi].ci[ci];
    *info = (nvmlComputeInstanceInfo_t){device_handle(mig.gpu), parent, ci, held->profile, {held->start, held->size}};
    return NVML_SUCCESS;
}
