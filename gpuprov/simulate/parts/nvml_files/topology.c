/* Where the GPUs hang: NUMA nodes, their processors, and how two GPUs reach each other. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim.h"

#define WORD (8 * sizeof(unsigned long))

EXPORT nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t one, nvmlDevice_t other, int *level) {
    const struct gpu *first, *second;
    nvmlReturn_t result = device_gpu(one, &first);
    if (result == NVML_SUCCESS) result = device_gpu(other, &second);
    if (result != NVML_SUCCESS) return result;
    if (!level) return NVML_ERROR_INVALID_ARGUMENT;
    *level = first == second ? 0 : first->numa == second->numa ? NVML_TOPOLOGY_NODE : NVML_TOPOLOGY_SYSTEM;
    return NVML_SUCCESS;
}

/* Sets a bit for each number of a list such as "0-3,8-11". */
static void set_bits(const char *list, unsigned long *set, unsigned words) {
    unsigned first, last;
    while (*list) {
        int got = sscanf(list, "%u-%u", &first, &last);
        if (got < 1) return;
        if (got == 1) last = first;
        for (unsigned bit = first; bit <= last && bit < words * WORD; bit++) set[bit / WORD] |= 1UL << bit % WORD;
        list += strcspn(list, ",");
        list += *list == ',';
    }
}

/* The processors of the machine under the simulation that its node of this number has; all, where it has no such node. */
EXPORT nvmlReturn_t nvmlDeviceGetCpuAffinity(nvmlDevice_t device, unsigned words, unsigned long *set) {
    const struct gpu *gpu;
    char path[96], line[512] = "";
    nvmlReturn_t result = device_gpu(device, &gpu);
    if (result != NVML_SUCCESS) return result;
    if (!set || !words) return NVML_ERROR_INVALID_ARGUMENT;
    memset(set, 0, words * sizeof *set);
    snprintf(path, sizeof path, "/sys/devices/system/node/node%u/cpulist", gpu->numa);
    FILE *file = fopen(path, "re");
    if (!file) file = fopen("/sys/devices/system/cpu/online", "re");
    if (!file) return NVML_ERROR_UNKNOWN;
    if (fgets(line, sizeof line, file)) set_bits(line, set, words);
    fclose(file);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetCpuAffinityWithinScope(nvmlDevice_t device, unsigned words, unsigned long *set, int scope) {
    return (void)scope, nvmlDeviceGetCpuAffinity(device, words, set);
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryAffinity(nvmlDevice_t device, unsigned words, unsigned long *nodes, int scope) {
    const struct gpu *gpu;
    nvmlReturn_t result = device_gpu(device, &gpu);
    if (result != NVML_SUCCESS) return result;
    if (!nodes || gpu->numa >= words * WORD) return NVML_ERROR_INVALID_ARGUMENT;
    (void)scope;
    memset(nodes, 0, words * sizeof *nodes);
    nodes[gpu->numa / WORD] |= 1UL << gpu->numa % WORD;
    return NVML_SUCCESS;
}

/* `others` may be null: then only how many there are. */
EXPORT nvmlReturn_t nvmlDeviceGetTopologyNearestGpus(nvmlDevice_t device, int level, unsigned *count, nvmlDevice_t *others) {
    const struct gpu *gpu;
    nvmlReturn_t result = device_gpu(device, &gpu);
    if (result != NVML_SUCCESS) return result;
    if (!count) return NVML_ERROR_INVALID_ARGUMENT;
    unsigned room = *count, found = 0;
    for (unsigned i = 0; i < config.gpu_count; i++) {
        int between = 0;
        nvmlDevice_t other = device_handle(i);
        if (other == device || nvmlDeviceGetTopologyCommonAncestor(device, other, &between) || between != level) continue;
        if (others && found < room) others[found] = other;
        found++;
    }
    *count = found;
    return NVML_SUCCESS;
}
