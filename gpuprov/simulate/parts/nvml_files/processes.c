/* Processes that compute on a GPU: those that have its device file and that of unified memory open, as CUDA does; in MIG mode, the
   device file of a compute instance. What they use of its memory is not known: nothing computes on a simulated GPU. */
#include <stdio.h>
#include <string.h>

#include "sim.h"

#define MOST 256

nvmlReturn_t nvmlSystemGetProcessName(unsigned pid, char *name, unsigned length);

/* As nvidia-smi reads it from the export table. */
struct process {
    unsigned pid;
    unsigned long long memory;
    unsigned gi, ci;
    unsigned long long protected_memory;
    char name[4096];
};

struct found {
    unsigned count;
    nvmlProcessInfo_t infos[MOST];
};

static void add(struct found *found, unsigned pid, unsigned gi, unsigned ci) {
    if (found->count < MOST) found->infos[found->count++] = (nvmlProcessInfo_t){pid, NVML_VALUE_NOT_AVAILABLE, gi, ci};
}

static void add_instance(struct found *found, unsigned gpu, unsigned gi, unsigned ci) {
    char device[64];
    unsigned pids[MOST];
    cap_path(device, sizeof device, gpu, gi, (int)ci);
    unsigned count = clients_of(device, pids, MOST);
    for (unsigned i = 0; i < count && i < MOST; i++) add(found, pids[i], gi, ci);
}

static void add_whole(struct found *found, unsigned gpu) {
    char device[64];
    unsigned pids[MOST], cuda[MOST];
    snprintf(device, sizeof device, "/dev/nvidia%u", gpu);
    unsigned count = clients_of(device, pids, MOST), computing = clients_of("/dev/nvidia-uvm", cuda, MOST);
    for (unsigned i = 0; i < count && i < MOST; i++)
        for (unsigned at = 0; at < computing && at < MOST; at++)
            if (pids[i] == cuda[at]) add(found, pids[i], NVML_NO_INSTANCE, NVML_NO_INSTANCE);
}

static nvmlReturn_t find(nvmlDevice_t device, struct found *found) {
    const struct gpu *gpu;
    struct mig mig;
    unsigned index, only_gi, only_ci;
    nvmlReturn_t result = device_any(device, &gpu);
    if (result != NVML_SUCCESS) return result;
    found->count = 0;
    bool whole = !device_is_mig(device, &index, &only_gi, &only_ci);
    bool split = mig_open(gpu->index, false, &mig) == NVML_SUCCESS;
    if (split) mig_close(&mig, false);
    if (!split || !mig.current) {
        add_whole(found, gpu->index);
        return NVML_SUCCESS;
    }
    for (unsigned gi = 0; gi < MAX_GI; gi++)
        for (unsigned ci = 0; ci < MAX_CI; ci++)
            if (mig.gi[gi].used && mig.gi[gi].ci[ci].used && (whole || (gi == only_gi && ci == only_ci)))
                add_instance(found, gpu->index, gi, ci);
    return NVML_SUCCESS;
}

/* `count` is the room, then how many there are. */
static nvmlReturn_t answer(nvmlDevice_t device, unsigned *count, void *infos, bool first_version) {
    struct found found;
    nvmlReturn_t result = find(device, &found);
    if (result != NVML_SUCCESS) return result;
    if (!count) return NVML_ERROR_INVALID_ARGUMENT;
    unsigned room = *count;
    *count = found.count;
    if (room < found.count) return NVML_ERROR_INSUFFICIENT_SIZE;
    if (found.count && !infos) return NVML_ERROR_INVALID_ARGUMENT;
    for (unsigned i = 0; i < found.count; i++)
        if (first_version)
            ((nvmlProcessInfo_v1_t *)infos)[i] = (nvmlProcessInfo_v1_t){found.infos[i].pid, found.infos[i].usedGpuMemory};
        else
            ((nvmlProcessInfo_t *)infos)[i] = found.infos[i];
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t device, unsigned *count, void *infos) {
    return answer(device, count, infos, true);
}
EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device, unsigned *count, void *infos) {
    return answer(device, count, infos, false);
}
EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned *count, void *infos) {
    return answer(device, count, infos, false);
}

nvmlReturn_t processes_shown(nvmlDevice_t device, unsigned *count, struct process *shown) {
    struct found found;
    nvmlReturn_t result = find(device, &found);
    if (result != NVML_SUCCESS) return result;
    unsigned room = *count;
    *count = found.count < room ? found.count : room;
    for (unsigned i = 0; i < *count; i++) {
        const nvmlProcessInfo_t *info = &found.infos[i];
        shown[i] = (struct process){info->pid, info->usedGpuMemory, info->gpuInstanceId, info->computeInstanceId,
                                    NVML_VALUE_NOT_AVAILABLE, ""};
        nvmlSystemGetProcessName(info->pid, shown[i].name, sizeof shown[i].name);
    }
    return NVML_SUCCESS;
}

/* Graphics, and clients of MPS, of which a stand-in knows nothing. */
nvmlReturn_t no_processes(nvmlDevice_t device, unsigned *count) {
    const struct gpu *gpu;
    nvmlReturn_t result = device_any(device, &gpu);
    if (result == NVML_SUCCESS && !count) return NVML_ERROR_INVALID_ARGUMENT;
    if (result == NVML_SUCCESS) *count = 0;
    return result;
}

#define NO_PROCESSES(function) \
    EXPORT nvmlReturn_t function(nvmlDevice_t device, unsigned *count, void *infos) { \
        return (void)infos, no_processes(device, count); \
    }

NO_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses)
NO_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v2)
NO_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v3)
NO_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses)
NO_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v2)
NO_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v3)
