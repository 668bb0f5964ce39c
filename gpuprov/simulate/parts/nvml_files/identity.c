/* Who a device is: name, UUID, PCI address, serial number, board. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim.h"

/* The compute instance behind a MIG device; NOT_FOUND once it is gone. */
static nvmlReturn_t instance(unsigned gpu, unsigned gi, unsigned ci, struct gpu_instance *found) {
    struct mig mig;
    nvmlReturn_t result = mig_open(gpu, false, &mig);
    if (result != NVML_SUCCESS) return result;
    mig_close(&mig, false);
    *found = mig.gi[gi];
    return found->used && found->ci[ci].used ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND;
}

EXPORT nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned length) {
    const struct gpu *gpu;
    struct gpu_instance found;
    unsigned index, gi, ci;
    nvmlReturn_t result = device_any(device, &gpu);
    if (result != NVML_SUCCESS) return result;
    if (!device_is_mig(device, &index, &gi, &ci)) return answer_text(name, length, gpu->name);
    result = instance(index, gi, ci, &found);
    if (result != NVML_SUCCESS) return result;
    char profile[48], text[160];
    ci_name(profile, sizeof profile, profile_by_nvml_id(found.profile), found.ci[ci].profile);
    snprintf(text, sizeof text, "%s MIG %s", gpu->name, profile);
    return answer_text(name, length, text);
}

EXPORT nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned length) {
    const struct gpu *gpu;
    struct gpu_instance found;
    unsigned index, gi, ci;
    nvmlReturn_t result = device_any(device, &gpu);
    if (result != NVML_SUCCESS) return result;
    if (!device_is_mig(device, &index, &gi, &ci)) return answer_text(uuid, length, gpu->uuid);
    result = instance(index, gi, ci, &found);
    return result == NVML_SUCCESS ? answer_text(uuid, length, found.ci[ci].uuid) : result;
}

EXPORT nvmlReturn_t nvmlDeviceGetSerial(nvmlDevice_t device, char *serial, unsigned length) {
    const struct gpu *gpu;
    nvmlReturn_t result = device_any(device, &gpu);
    return result == NVML_SUCCESS ? answer_text(serial, length, gpu->serial) : result;
}

static nvmlReturn_t number(nvmlDevice_t device, unsigned *answer, unsigned (*of)(const struct gpu *)) {
    const struct gpu *gpu;
    nvmlReturn_t result = device_gpu(device, &gpu);
    if (result == NVML_SUCCESS && !answer) return NVML_ERROR_INVALID_ARGUMENT;
    if (result == NVML_SUCCESS) *answer = of(gpu);
    return result;
}

static unsigned of_index(const struct gpu *gpu) { return gpu->index; }
static unsigned of_board(const struct gpu *gpu) { return gpu->domain << 16 | gpu->bus << 8; }
static unsigned of_module(const struct gpu *gpu) { return gpu->index + 1; }
static unsigned of_zero(const struct gpu *gpu) { return (void)gpu, 0; }

/* A MIG device is counted on its own GPU, as nvmlDeviceGetMigDeviceHandleByIndex does. */
EXPORT nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned *index) {
    struct mig mig;
    unsigned gpu, gi, ci;
    if (!device_is_mig(device, &gpu, &gi, &ci)) return number(device, index, of_index);
    nvmlReturn_t result = mig_open(gpu, false, &mig);
    if (result != NVML_SUCCESS) return result;
    mig_close(&mig, false);
    *index = 0;
    for (unsigned at = 0; at < gi * MAX_CI + ci; at++)
        *index += mig.gi[at / MAX_CI].used && mig.gi[at / MAX_CI].ci[at % MAX_CI].used;
    return mig.gi[gi].used && mig.gi[gi].ci[ci].used ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND;
}
EXPORT nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned *minor) {
    return number(device, minor, of_index);
}
EXPORT nvmlReturn_t nvmlDeviceGetBoardId(nvmlDevice_t device, unsigned *board) { return number(device, board, of_board); }
EXPORT nvmlReturn_t nvmlDeviceGetModuleId(nvmlDevice_t device, unsigned *module) {
    return number(device, module, of_module);
}
EXPORT nvmlReturn_t nvmlDeviceGetMultiGpuBoard(nvmlDevice_t device, unsigned *multi) {
    return number(device, multi, of_zero);
}

EXPORT nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci) {
    const struct gpu *gpu;
    nvmlReturn_t result = device_any(device, &gpu);
    if (result != NVML_SUCCESS) return result;
    if (!pci) return NVML_ERROR_INVALID_ARGUMENT;
    memset(pci, 0, sizeof *pci);
    snprintf(pci->busIdLegacy, sizeof pci->busIdLegacy, "%04X:%02X:%02X.0", gpu->domain & 0xffff, gpu->bus & 0xff,
             gpu->slot & 0xff);
    snprintf(pci->busId, sizeof pci->busId, "%08X:%02X:%02X.0", gpu->domain, gpu->bus, gpu->slot);
    pci->domain = gpu->domain;
    pci->bus = gpu->bus;
    pci->device = gpu->slot;
    pci->pciDeviceId = gpu->pci_id;
    pci->pciSubSystemId = gpu->pci_subsystem;
    return NVML_SUCCESS;
}

/* Version 1 had no busId at its end; version 2 ended before it too. */
EXPORT nvmlReturn_t nvmlDeviceGetPciInfo_v2(nvmlDevice_t device, void *pci) {
    nvmlPciInfo_t whole;
    nvmlReturn_t result = nvmlDeviceGetPciInfo_v3(device, &whole);
    if (result == NVML_SUCCESS) memcpy(pci, &whole, offsetof(nvmlPciInfo_t, busId));
    return result;
}
EXPORT nvmlReturn_t nvmlDeviceGetPciInfo(nvmlDevice_t device, void *pci) { return nvmlDeviceGetPciInfo_v2(device, pci); }

EXPORT nvmlReturn_t nvmlDeviceGetPciInfoExt(nvmlDevice_t device, nvmlPciInfoExt_t *pci) {
    nvmlPciInfo_t short_form;
    nvmlReturn_t result = nvmlDeviceGetPciInfo_v3(device, &short_form);
    if (result != NVML_SUCCESS) return result;
    if (!pci) return NVML_ERROR_INVALID_ARGUMENT;
    if (pci->version != NVML_STRUCT_VERSION(sizeof *pci, 1)) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    pci->domain = short_form.domain;
    pci->bus = short_form.bus;
    pci->device = short_form.device;
    pci->pciDeviceId = short_form.pciDeviceId;
    pci->pciSubSystemId = short_form.pciSubSystemId;
    pci->baseClass = 0x03; /* display controller, 3D */
    pci->subClass = 0x02;
    memcpy(pci->busId, short_form.busId, sizeof pci->busId);
    return NVML_SUCCESS;
}

static nvmlReturn_t text(nvmlDevice_t device, char *buffer, unsigned length, const char *key) {
    const struct gpu *gpu;
    nvmlReturn_t result = device_gpu(device, &gpu);
    if (result != NVML_SUCCESS) return result;
    const char *known = config_text(key, NULL);
    return known ? answer_text(buffer, length, known) : NVML_ERROR_NOT_SUPPORTED;
}

EXPORT nvmlReturn_t nvmlDeviceGetVbiosVersion(nvmlDevice_t device, char *version, unsigned length) {
    const struct gpu *gpu;
    bool other = device_gpu(device, &gpu) == NVML_SUCCESS && host_fault("vbios-differs", gpu->index);
    return text(device, version, length, other ? "vbios_other" : "vbios");
}

EXPORT nvmlReturn_t nvmlDeviceGetBoardPartNumber(nvmlDevice_t device, char *number_, unsigned length) {
    return text(device, number_, length, "board_part_number");
}

/* The stand-in kernel modules run no GSP firmware, but a driver with GSP says its own version here. */
EXPORT nvmlReturn_t nvmlDeviceGetGspFirmwareVersion(nvmlDevice_t device, char *version) {
    const struct gpu *gpu;
    nvmlReturn_t result = device_gpu(device, &gpu);
    return result == NVML_SUCCESS ? answer_text(version, 64, own_version()) : result;
}

EXPORT nvmlReturn_t nvmlDeviceGetGspFirmwareMode(nvmlDevice_t device, unsigned *enabled, unsigned *is_default) {
    const struct gpu *gpu;
    nvmlReturn_t result = device_gpu(device, &gpu);
    if (result == NVML_SUCCESS) *enabled = *is_default = 1;
    return result;
}
