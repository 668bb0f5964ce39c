/* nvidia-smi asks for a table of NVML's undocumented functions and does not start without one. Three things in it matter to
   nvidia-smi 535 and 550, and were found by watching what they call and print; the rest says "not supported", and
   nvidia-smi goes on with the documented functions. */
#include <stdint.h>

#include "sim.h"

#define ENTRIES 512
enum { TOPOLOGY = 23, PROCESSES_FIRST = 213, PROCESSES_LAST = 215 };
enum { SAME_NODE = 3, OTHER_NODE = 4 }; /* above: so many NVLinks and OTHER_NODE */

nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *address, nvmlDevice_t *device);

static nvmlReturn_t unknown(void) { return NVML_ERROR_NOT_SUPPORTED; }

/* For `nvidia-smi topo -m`: how the GPUs at two PCI addresses reach each other. */
static nvmlReturn_t topology(const char *one, const char *other, int *level) {
    nvmlDevice_t devices[2];
    const struct gpu *gpus[2];
    nvmlReturn_t result = nvmlDeviceGetHandleByPciBusId_v2(one, &devices[0]);
    if (result == NVML_SUCCESS) result = nvmlDeviceGetHandleByPciBusId_v2(other, &devices[1]);
    if (result == NVML_SUCCESS) result = device_gpu(devices[0], &gpus[0]);
    if (result == NVML_SUCCESS) result = device_gpu(devices[1], &gpus[1]);
    if (result != NVML_SUCCESS) return result;
    if (config_number("fabric", 0))
        *level = OTHER_NODE + (int)config_number("nvlinks", 0);
    else
        *level = gpus[0]->numa == gpus[1]->numa ? SAME_NODE : OTHER_NODE;
    return NVML_SUCCESS;
}

/* Processes of a GPU or MIG device: compute, graphics, MPS. */
static nvmlReturn_t processes(nvmlDevice_t device, unsigned *count) {
    const struct gpu *gpu;
    nvmlReturn_t result = device_any(device, &gpu);
    if (result == NVML_SUCCESS) *count = 0;
    return result;
}

/* The first entry is the size of the table in bytes. */
EXPORT nvmlReturn_t nvmlInternalGetExportTable(const uintptr_t **table, const void *id) {
    static uintptr_t entries[ENTRIES];
    if (!table || !id) return NVML_ERROR_INVALID_ARGUMENT;
    entries[0] = sizeof entries;
    for (unsigned i = 1; i < ENTRIES; i++) entries[i] = (uintptr_t)unknown;
    entries[TOPOLOGY] = (uintptr_t)topology;
    for (unsigned i = PROCESSES_FIRST; i <= PROCESSES_LAST; i++) entries[i] = (uintptr_t)processes;
    *table = entries;
    return NVML_SUCCESS;
}
