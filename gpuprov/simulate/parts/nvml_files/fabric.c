/* NVLink fabric and fields. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim.h"

/* The fabric manager latches "Completed" here; it stays so until a reboot, even when the fabric manager dies. */
static bool fabric_completed(void) {
    char path[PATH_SIZE], line[32] = "";
    FILE *file = fopen(host_path(path, "/run/gpuprov-sim/fabric"), "re");
    if (!file) return false;
    bool found = fgets(line, sizeof line, file) && !strncmp(line, "Completed", 9);
    fclose(file);
    return found;
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuFabricInfo(nvmlDevice_t device, nvmlGpuFabricInfo_t *info) {
    const struct gpu *gpu;
    nvmlReturn_t result = device_gpu(device, &gpu);
    if (result != NVML_SUCCESS) return result;
    if (!info) return NVML_ERROR_INVALID_ARGUMENT;
    memset(info, 0, sizeof *info);
    if (!config_number("fabric", 0))
        info->state = NVML_FABRIC_NOT_SUPPORTED;
    else
        info->state = fabric_completed() ? NVML_FABRIC_COMPLETED : NVML_FABRIC_IN_PROGRESS;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t device, nvmlGpuFabricInfo_v2_t *info) {
    nvmlGpuFabricInfo_t plain;
    nvmlReturn_t result = nvmlDeviceGetGpuFabricInfo(device, &plain);
    if (result != NVML_SUCCESS) return result;
    if (!info) return NVML_ERROR_INVALID_ARGUMENT;
    bool third = info->version == NVML_STRUCT_VERSION(sizeof(nvmlGpuFabricInfo_v3_t), 3);
    if (!third && info->version != NVML_STRUCT_VERSION(sizeof *info, 2)) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    memcpy(info->clusterUuid, plain.clusterUuid, sizeof plain.clusterUuid);
    info->status = plain.status;
    info->cliqueId = plain.cliqueId;
    info->state = plain.state;
    info->healthMask = 2; /* bandwidth is not degraded; nothing is known of the rest */
    if (third) ((nvmlGpuFabricInfo_v3_t *)info)->healthSummary = plain.state == NVML_FABRIC_COMPLETED;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned link, unsigned *active) {
    const struct gpu *gpu;
    nvmlReturn_t result = device_gpu(device, &gpu);
    if (result != NVML_SUCCESS) return result;
    if (!active) return NVML_ERROR_INVALID_ARGUMENT;
    long links = config_number("nvlinks", 0);
    if (!links) return NVML_ERROR_NOT_SUPPORTED;
    if (link >= links) return NVML_ERROR_INVALID_ARGUMENT;
    *active = 1;
    return NVML_SUCCESS;
}

/* No field is simulated; each says so by itself. */
EXPORT nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t *values) {
    const struct gpu *gpu;
    nvmlReturn_t result = device_any(device, &gpu);
    for (int i = 0; result == NVML_SUCCESS && i < count; i++) values[i].nvmlReturn = NVML_ERROR_NOT_SUPPORTED;
    return result;
}
