/* What an idle GPU of the model measures and is set to. Nothing is measured: there is no GPU. */
#include <stdlib.h>
#include <string.h>

#include "settings.h"

#define MIB (1024ULL * 1024ULL)

/* `key` of nvml.tsv for the device; NOT_SUPPORTED where the model's profile does not say. */
static nvmlReturn_t known(nvmlDevice_t device, const char *key, unsigned *answer) {
    const struct gpu *gpu;
    nvmlReturn_t result = device_gpu(device, &gpu);
    if (result != NVML_SUCCESS) return result;
    if (!answer) return NVML_ERROR_INVALID_ARGUMENT;
    long value = config_number(key, -1);
    if (value < 0) return NVML_ERROR_NOT_SUPPORTED;
    *answer = (unsigned)value;
    return NVML_SUCCESS;
}

#define ANSWER(function, key) \
    EXPORT nvmlReturn_t function(nvmlDevice_t device, unsigned *answer) { return known(device, key, answer); }

ANSWER(nvmlDeviceGetArchitecture, "architecture")
ANSWER(nvmlDeviceGetBrand, "brand")
ANSWER(nvmlDeviceGetNumGpuCores, "cores")
ANSWER(nvmlDeviceGetMemoryBusWidth, "memory_bus_width")
ANSWER(nvmlDeviceGetMaxPcieLinkGeneration, "pcie_generation")
ANSWER(nvmlDeviceGetGpuMaxPcieLinkGeneration, "pcie_generation")
ANSWER(nvmlDeviceGetCurrPcieLinkGeneration, "pcie_generation")
ANSWER(nvmlDeviceGetMaxPcieLinkWidth, "pcie_width")
ANSWER(nvmlDeviceGetCurrPcieLinkWidth, "pcie_width")
ANSWER(nvmlDeviceGetPowerUsage, "power_idle_mw")
ANSWER(nvmlDeviceGetPowerManagementDefaultLimit, "power_limit_mw")
ANSWER(nvmlDeviceGetPowerManagementMode, "one")
ANSWER(nvmlDeviceGetPerformanceState, "zero")
ANSWER(nvmlDeviceGetPowerState, "zero")
ANSWER(nvmlDeviceGetDisplayMode, "zero")
ANSWER(nvmlDeviceGetDisplayActive, "zero")
ANSWER(nvmlDeviceGetAccountingMode, "zero")
ANSWER(nvmlDeviceGetRetiredPagesPendingStatus, "zero")
ANSWER(nvmlDeviceGetVirtualizationMode, "zero")

EXPORT nvmlReturn_t nvmlDeviceGetPcieReplayCounter(nvmlDevice_t device, unsigned *count) {
    const struct gpu *gpu;
    nvmlReturn_t result = known(device, "zero", count);
    if (result == NVML_SUCCESS && device_gpu(device, &gpu) == NVML_SUCCESS && host_fault("gpu-pcie-replays", gpu->index)) *count = 67;
    return result;
}

/* Nothing but what is set limits a simulated GPU, if it is not held down from outside. */
EXPORT nvmlReturn_t nvmlDeviceGetPowerManagementLimit(nvmlDevice_t device, unsigned *limit) {
    const struct gpu *gpu;
    nvmlReturn_t result = known(device, "power_limit_mw", limit);
    if (result != NVML_SUCCESS || device_gpu(device, &gpu) != NVML_SUCCESS) return result;
    unsigned set = settings_of(gpu->index).power_mw;
    if (set) *limit = set;
    return NVML_SUCCESS;
}
EXPORT nvmlReturn_t nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t device, unsigned *limit) {
    const struct gpu *gpu;
    nvmlReturn_t result = nvmlDeviceGetPowerManagementLimit(device, limit);
    if (result == NVML_SUCCESS && device_gpu(device, &gpu) == NVML_SUCCESS && host_fault("gpu-power-held", gpu->index)) *limit /= 2;
    return result;
}

EXPORT nvmlReturn_t nvmlDeviceGetPowerManagementLimitConstraints(nvmlDevice_t device, unsigned *least, unsigned *most) {
    nvmlReturn_t result = known(device, "power_min_mw", least);
    return result == NVML_SUCCESS ? known(device, "power_limit_mw", most) : result;
}

EXPORT nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor) {
    const struct gpu *gpu;
    nvmlReturn_t result = device_any(device, &gpu);
    if (result != NVML_SUCCESS) return result;
    if (!major || !minor) return NVML_ERROR_INVALID_ARGUMENT;
    *major = (int)config_number("compute_major", 0);
    *minor = (int)config_number("compute_minor", 0);
    return NVML_SUCCESS;
}

/* Total and reserved memory in MiB: the GPU's, or the MIG device's share. */
static nvmlReturn_t memory_of(nvmlDevice_t device, unsigned long long *total, unsigned long long *reserved) {
    const struct gpu *gpu;
    unsigned index, gi, ci;
    struct mig mig;
    nvmlReturn_t result = device_any(device, &gpu);
    if (result != NVML_SUCCESS) return result;
    *total = (unsigned long long)config_number("memory_mib", 0);
    *reserved = (unsigned long long)config_number("memory_reserved_mib", 0);
    if (!device_is_mig(device, &index, &gi, &ci)) return NVML_SUCCESS;
    result = mig_open(index, false, &mig);
    if (result != NVML_SUCCESS) return result;
    mig_close(&mig, false);
    if (!mig.gi[gi].used || !mig.gi[gi].ci[ci].used) return NVML_ERROR_NOT_FOUND;
    *total = profile_by_nvml_id(mig.gi[gi].profile)->memory_mib;
    *reserved = 0;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory) {
    unsigned long long total, reserved;
    nvmlReturn_t result = memory_of(device, &total, &reserved);
    if (result != NVML_SUCCESS) return result;
    if (!memory) return NVML_ERROR_INVALID_ARGUMENT;
    if (memory->version != NVML_STRUCT_VERSION(sizeof *memory, 2)) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    memory->total = total * MIB;
    memory->reserved = reserved * MIB;
    const struct gpu *gpu;
    bool held = device_gpu(device, &gpu) == NVML_SUCCESS && host_fault("gpu-memory-held", gpu->index);
    memory->used = held ? total / 2 * MIB : 0;
    memory->free = (total - reserved) * MIB - memory->used;
    return NVML_SUCCESS;
}

/* Version 1 counts reserved memory as used. */
EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory) {
    nvmlMemory_v2_t whole = {.version = NVML_STRUCT_VERSION(sizeof whole, 2)};
    nvmlReturn_t result = nvmlDeviceGetMemoryInfo_v2(device, &whole);
    if (result != NVML_SUCCESS) return result;
    if (!memory) return NVML_ERROR_INVALID_ARGUMENT;
    *memory = (nvmlMemory_t){whole.total, whole.free, whole.used + whole.reserved};
    return NVML_SUCCESS;
}

/* A MIG device has the same share of BAR1 as of the memory. */
EXPORT nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory) {
    unsigned long long total, reserved, whole = (unsigned long long)config_number("memory_mib", 1);
    nvmlReturn_t result = memory_of(device, &total, &reserved);
    if (result != NVML_SUCCESS) return result;
    if (!memory) return NVML_ERROR_INVALID_ARGUMENT;
    total = (unsigned long long)config_number("bar1_mib", 0) * total / whole;
    *memory = (nvmlMemory_t){total * MIB, (total - 1) * MIB, MIB};
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *rates) {
    const struct gpu *gpu;
    nvmlReturn_t result = device_gpu(device, &gpu);
    if (result == NVML_SUCCESS && !rates) return NVML_ERROR_INVALID_ARGUMENT;
    if (result == NVML_SUCCESS) *rates = (nvmlUtilization_t){host_fault("gpu-slow-clock", gpu->index) ? 100 : 0, 0};
    return result;
}

EXPORT nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, int sensor, unsigned *degrees) {
    const struct gpu *gpu;
    nvmlReturn_t result = sensor == 0 ? known(device, "temperature", degrees) : NVML_ERROR_INVALID_ARGUMENT;
    if (result != NVML_SUCCESS || device_gpu(device, &gpu) != NVML_SUCCESS || !host_fault("gpu-hot", gpu->index)) return result;
    *degrees = (unsigned)config_number("temperature_slowdown", 92) + 1;
    return result;
}

EXPORT nvmlReturn_t nvmlDeviceGetTemperatureThreshold(nvmlDevice_t device, int kind, unsigned *degrees) {
    static const char *const keys[] = {"temperature_shutdown", "temperature_slowdown", "temperature_memory",
                                       "temperature_target"};
    return kind >= 0 && kind < 4 ? known(device, keys[kind], degrees) : NVML_ERROR_NOT_SUPPORTED;
}

static nvmlReturn_t clock_of(nvmlDevice_t device, int clock, unsigned *mhz, bool idle) {
    switch (clock) {
    case NVML_CLOCK_GRAPHICS:
    case NVML_CLOCK_SM:
        return known(device, idle ? "clock_idle" : "clock_sm", mhz);
    case NVML_CLOCK_MEM:
        return known(device, "clock_memory", mhz);
    case NVML_CLOCK_VIDEO:
        return known(device, idle ? "clock_idle" : "clock_video", mhz);
    default:
        return NVML_ERROR_INVALID_ARGUMENT;
    }
}

/* The current clock of an idle GPU, which a lock holds up or down. */
EXPORT nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, int clock, unsigned *mhz) {
    const struct gpu *gpu;
    nvmlReturn_t result = clock_of(device, clock, mhz, true);
    if (result != NVML_SUCCESS || device_gpu(device, &gpu) != NVML_SUCCESS) return result;
    struct settings now = settings_of(gpu->index);
    if (clock == NVML_CLOCK_GRAPHICS || clock == NVML_CLOCK_SM) *mhz = settings_held(*mhz, now.graphics);
    if (clock == NVML_CLOCK_MEM) *mhz = settings_held(*mhz, now.memory);
    return NVML_SUCCESS;
}
EXPORT nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t device, int clock, unsigned *mhz) {
    return clock_of(device, clock, mhz, false);
}
EXPORT nvmlReturn_t nvmlDeviceGetDefaultApplicationsClock(nvmlDevice_t device, int clock, unsigned *mhz) {
    return clock_of(device, clock, mhz, false);
}
EXPORT nvmlReturn_t nvmlDeviceGetApplicationsClock(nvmlDevice_t device, int clock, unsigned *mhz) {
    const struct gpu *gpu;
    nvmlReturn_t result = clock_of(device, clock, mhz, false);
    if (result != NVML_SUCCESS || device_gpu(device, &gpu) != NVML_SUCCESS) return result;
    struct settings now = settings_of(gpu->index);
    if (clock == NVML_CLOCK_MEM && now.application_memory) *mhz = now.application_memory;
    if (clock != NVML_CLOCK_MEM && now.application_graphics) *mhz = now.application_graphics;
    return NVML_SUCCESS;
}
/* 0: the current clock, 1: the application clock. */
EXPORT nvmlReturn_t nvmlDeviceGetClock(nvmlDevice_t device, int clock, int which, unsigned *mhz) {
    if (which == 0) return nvmlDeviceGetClockInfo(device, clock, mhz);
    return which == 1 ? nvmlDeviceGetApplicationsClock(device, clock, mhz) : clock_of(device, clock, mhz, false);
}

/* Reasons by https://docs.nvidia.com/deploy/nvml-api/group__nvmlClocksEventReasons.html ; a GPU that nothing slows down is idle. */
EXPORT nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t device, unsigned long long *reasons) {
    const struct gpu *gpu;
    nvmlReturn_t result = device_gpu(device, &gpu);
    enum { IDLE = 1, HW_SLOWDOWN = 0x8, HW_THERMAL = 0x40, HW_POWER_BRAKE = 0x80 };
    if (result != NVML_SUCCESS) return result;
    *reasons = 0;
    if (host_fault("gpu-hot", gpu->index)) *reasons |= HW_SLOWDOWN | HW_THERMAL;
    if (host_fault("gpu-power-brake", gpu->index)) *reasons |= HW_SLOWDOWN | HW_POWER_BRAKE;
    if (!*reasons && !host_fault("gpu-slow-clock", gpu->index)) *reasons = IDLE; /* that one computes, at the clock of an idle GPU */
    return result;
}
EXPORT nvmlReturn_t nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice_t device, unsigned long long *reasons) {
    return nvmlDeviceGetCurrentClocksThrottleReasons(device, reasons);
}
EXPORT nvmlReturn_t nvmlDeviceGetSupportedClocksThrottleReasons(nvmlDevice_t device, unsigned long long *reasons) {
    const struct gpu *gpu;
    nvmlReturn_t result = device_gpu(device, &gpu);
    if (result == NVML_SUCCESS) *reasons = 0x1ff;
    return result;
}

EXPORT nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t device, unsigned *current, unsigned *pending) {
    const struct gpu *gpu;
    nvmlReturn_t result = known(device, "ecc", current);
    if (result == NVML_SUCCESS) result = device_gpu(device, &gpu);
    if (result != NVML_SUCCESS || !pending) return result == NVML_SUCCESS ? NVML_ERROR_INVALID_ARGUMENT : result;
    struct settings now = settings_of(gpu->index);
    bool off = host_fault("gpu-ecc-off", gpu->index);
    *current = now.ecc && !off;
    *pending = now.ecc_pending && !off;
    return NVML_SUCCESS;
}

/* Three uncorrectable errors (type 1) where the fault is planted; of the locations in the memory (2), or in all. */
static nvmlReturn_t errors(nvmlDevice_t device, int type, bool memory, unsigned long long *count) {
    const struct gpu *gpu;
    nvmlReturn_t result = device_any(device, &gpu);
    if (result == NVML_SUCCESS && !count) return NVML_ERROR_INVALID_ARGUMENT;
    if (result == NVML_SUCCESS) *count = type == 1 && memory && host_fault("gpu-ecc-errors", gpu->index) ? 3 : 0;
    return result;
}

EXPORT nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, int type, int counter, unsigned long long *count) {
    return (void)counter, errors(device, type, true, count);
}
EXPORT nvmlReturn_t nvmlDeviceGetMemoryErrorCounter(nvmlDevice_t device, int type, int counter, int location,
                                                    unsigned long long *count) {
    return (void)counter, errors(device, type, location == 2, count);
}

EXPORT nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned *corrected, unsigned *uncorrected,
                                              unsigned *pending, unsigned *failed) {
    const struct gpu *gpu;
    nvmlReturn_t result = device_gpu(device, &gpu);
    if (result != NVML_SUCCESS) return result;
    *corrected = 0;
    *pending = host_fault("gpu-row-pending", gpu->index);
    *failed = host_fault("gpu-row-failed", gpu->index);
    *uncorrected = *pending + 8 * *failed;
    return result;
}

static nvmlReturn_t no_load(nvmlDevice_t device, unsigned *percent, unsigned *period) {
    const struct gpu *gpu;
    nvmlReturn_t result = device_gpu(device, &gpu);
    if (result == NVML_SUCCESS) *percent = 0, *period = 167000;
    return result;
}

EXPORT nvmlReturn_t nvmlDeviceGetEncoderUtilization(nvmlDevice_t d, unsigned *p, unsigned *t) { return no_load(d, p, t); }
EXPORT nvmlReturn_t nvmlDeviceGetDecoderUtilization(nvmlDevice_t d, unsigned *p, unsigned *t) { return no_load(d, p, t); }
EXPORT nvmlReturn_t nvmlDeviceGetJpgUtilization(nvmlDevice_t d, unsigned *p, unsigned *t) { return no_load(d, p, t); }
EXPORT nvmlReturn_t nvmlDeviceGetOfaUtilization(nvmlDevice_t d, unsigned *p, unsigned *t) { return no_load(d, p, t); }

EXPORT nvmlReturn_t nvmlDeviceGetPersistenceMode(nvmlDevice_t device, unsigned *mode) {
    const struct gpu *gpu;
    nvmlReturn_t result = device_gpu(device, &gpu);
    if (result == NVML_SUCCESS && !mode) return NVML_ERROR_INVALID_ARGUMENT;
    /* Without it the driver would start, and compute at full clock, for nvidia-smi alone. */
    if (result == NVML_SUCCESS) *mode = host_persistence(gpu->index) || host_fault("gpu-slow-clock", gpu->index);
    return result;
}

EXPORT nvmlReturn_t nvmlDeviceSetPersistenceMode(nvmlDevice_t device, unsigned mode) {
    const struct gpu *gpu;
    nvmlReturn_t result = device_gpu(device, &gpu);
    return result == NVML_SUCCESS ? host_set_persistence(gpu->index, mode == NVML_FEATURE_ENABLED) : result;
}
