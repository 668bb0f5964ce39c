/* NVLink fabric and fields. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "settings.h"

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
    else if (config_number("fabric", 0) > 1) { /* a compute tray: the rack's switches have attached it */
        info->state = NVML_FABRIC_COMPLETED;
        info->cliqueId = 32766;
        memset(info->clusterUuid, 0x5a, sizeof info->clusterUuid);
    } else
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
    *active = !host_link_down(gpu->index, link);
    return NVML_SUCCESS;
}

/* Of the fields those of NVLinks, and power limits: how many there are, errors, state and MB/s of each. https://docs.nvidia.com/deploy/nvml-api (nvmlFieldValueEnums) */
static bool link_field(unsigned index, unsigned field, unsigned scope, unsigned *answer) {
    enum { SPEED_L0 = 84, SPEED_L5 = 89, SPEED_COMMON = 90, LINK_COUNT = 91, SPEED_L6 = 132, SPEED_L11 = 137,
           REPLAYS = 161, RECOVERIES = 162, CRC = 163, GET_SPEED = 164, GET_STATE = 165 };
    unsigned links = (unsigned)config_number("nvlinks", 0), link = 0;
    if (field == LINK_COUNT) return *answer = links, links > 0;
    if (field == GET_STATE) return *answer = !host_link_down(index, scope), scope < links;
    if (field >= REPLAYS && field <= CRC) return *answer = 5 * (scope == 0 && host_fault("nvlink-errors", index)), scope < links;
    if (field >= SPEED_L0 && field <= SPEED_L5) link = field - SPEED_L0;
    else if (field >= SPEED_L6 && field <= SPEED_L11) link = field - SPEED_L6 + 6;
    else if (field == GET_SPEED) link = scope;
    else if (field != SPEED_COMMON) return false;
    *answer = (unsigned)config_number("nvlink_mbps", 0);
    return link < links && !host_link_down(index, link);
}

/* Whether the GPU is to be reset, and whether it is to be drained before. */
static bool reset_field(unsigned index, unsigned field, unsigned scope, unsigned *answer) {
    enum { RESET = 226, DRAIN_AND_RESET };
    *answer = field == RESET && (host_fault("gpu-reset-required", index) || host_gpu_stuck(index));
    return scope == 0 && (field == RESET || field == DRAIN_AND_RESET);
}

/* The others say each by itself that they are not simulated. */
EXPORT nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t *values) {
    const struct gpu *gpu;
    nvmlReturn_t result = device_any(device, &gpu);
    for (int i = 0; result == NVML_SUCCESS && i < count; i++) {
        unsigned answer = 0;
        bool known = link_field(gpu->index, values[i].fieldId, values[i].scopeId, &answer) ||
                     settings_field(gpu->index, values[i].fieldId, values[i].scopeId, &answer) ||
                     reset_field(gpu->index, values[i].fieldId, values[i].scopeId, &answer);
        values[i].nvmlReturn = known ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
        values[i].valueType = NVML_VALUE_TYPE_UNSIGNED_INT;
        values[i].value = answer;
    }
    return result;
}
