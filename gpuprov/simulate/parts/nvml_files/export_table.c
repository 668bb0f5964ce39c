/* nvidia-smi asks for a table of NVML's undocumented functions and does not start without one. A few things in it matter to
   nvidia-smi 535 and 550, and were found by watching what they call and print; the rest says "not supported", and
   nvidia-smi goes on with the documented functions. */
#include <stdint.h>

#include "sim.h"

#define ENTRIES 512
enum { TOPOLOGY = 23, COMPUTE_PROCESSES = 213, GRAPHICS_PROCESSES = 214, MPS_PROCESSES = 215 };
enum { PRIMARY = 20, RESET = 168, RESET_FABRIC = 169, GROUP_MAKE = 182, GROUP_LIST = 183, GROUP_FREE = 184 };
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

/* The first entry is the size of the table in bytes. */
EXPORT nvmlReturn_t nvmlInternalGetExportTable(const uintptr_t **table, const void *id) {
    static uintptr_t entries[ENTRIES];
    if (!table || !id) return NVML_ERROR_INVALID_ARGUMENT;
    entries[0] = sizeof entries;
    for (unsigned i = 1; i < ENTRIES; i++) entries[i] = (uintptr_t)unknown;
    entries[TOPOLOGY] = (uintptr_t)topology;
    entries[COMPUTE_PROCESSES] = (uintptr_t)processes_shown;
    entries[GRAPHICS_PROCESSES] = entries[MPS_PROCESSES] = (uintptr_t)no_processes;
    entries[PRIMARY] = (uintptr_t)reset_is_primary;
    entries[RESET] = (uintptr_t)reset_devices;
    entries[RESET_FABRIC] = (uintptr_t)reset_fabric;
    entries[GROUP_MAKE] = (uintptr_t)reset_group_make;
    entries[GROUP_LIST] = (uintptr_t)reset_group_list;
    entries[GROUP_FREE] = (uintptr_t)reset_group_free;
    *table = entries;
    return NVML_SUCCESS;
}
