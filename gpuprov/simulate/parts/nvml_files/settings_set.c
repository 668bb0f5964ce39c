/* The functions of NVML that set, for root and on whole GPUs, what settings.c keeps. */
#include "settings.h"

#define STEP 15 /* MHz from one graphics clock of a GPU to the next, in nvidia-smi's lists of real ones */

typedef struct {
    unsigned version;
    unsigned char scope;
    unsigned milliwatts;
} nvmlPowerValue_v2_t;

/* The GPU of a handle that may be changed, and its settings. */
static nvmlReturn_t changing(nvmlDevice_t device, struct settings *found) {
    const struct gpu *gpu;
    nvmlReturn_t result = device_gpu(device, &gpu);
    if (result != NVML_SUCCESS) return result;
    *found = settings_of(gpu->index);
    return host_is_root() ? NVML_SUCCESS : NVML_ERROR_NO_PERMISSION;
}

EXPORT nvmlReturn_t nvmlDeviceSetEccMode(nvmlDevice_t device, unsigned mode) {
    struct settings now;
    nvmlReturn_t result = changing(device, &now);
    if (result != NVML_SUCCESS) return result;
    if (mode > NVML_FEATURE_ENABLED) return NVML_ERROR_INVALID_ARGUMENT;
    if (config_number("ecc", -1) < 0) return NVML_ERROR_NOT_SUPPORTED;
    now.ecc_pending = mode;
    return settings_keep(&now);
}

EXPORT nvmlReturn_t nvmlDeviceSetPowerManagementLimit(nvmlDevice_t device, unsigned milliwatts) {
    struct settings now;
    nvmlReturn_t result = changing(device, &now);
    if (result != NVML_SUCCESS) return result;
    if (config_number("power_limit_mw", -1) < 0) return NVML_ERROR_NOT_SUPPORTED;
    if (milliwatts < config_number("power_min_mw", 0) || milliwatts > config_number("power_limit_mw", 0))
        return NVML_ERROR_INVALID_ARGUMENT;
    now.power_mw = milliwatts;
    return settings_keep(&now);
}

EXPORT nvmlReturn_t nvmlDeviceSetPowerManagementLimit_v2(nvmlDevice_t device, const nvmlPowerValue_v2_t *value) {
    if (!value) return NVML_ERROR_INVALID_ARGUMENT;
    if (value->version != NVML_STRUCT_VERSION(sizeof *value, 2)) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (value->scope) return NVML_ERROR_NOT_SUPPORTED; /* of a module, or of its memory */
    return nvmlDeviceSetPowerManagementLimit(device, value->milliwatts);
}

static unsigned fastest(void) { return (unsigned)config_number("clock_sm", 0); }
static unsigned slowest(void) { return (unsigned)config_number("clock_least", 0); }
static unsigned memory_clock(void) { return (unsigned)config_number("clock_memory", 0); }

static nvmlReturn_t listed(unsigned *count, unsigned *clocks, unsigned most, unsigned least, unsigned step) {
    unsigned room = *count, number = (most - least) / step + 1;
    *count = number;
    if (!clocks || room < number) return NVML_ERROR_INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < number; i++) clocks[i] = most - i * step;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetSupportedMemoryClocks(nvmlDevice_t device, unsigned *count, unsigned *clocks) {
    const struct gpu *gpu;
    nvmlReturn_t result = device_gpu(device, &gpu);
    if (result != NVML_SUCCESS) return result;
    return count ? listed(count, clocks, memory_clock(), memory_clock(), 1) : NVML_ERROR_INVALID_ARGUMENT;
}

EXPORT nvmlReturn_t nvmlDeviceGetSupportedGraphicsClocks(nvmlDevice_t device, unsigned memory, unsigned *count,
                                                         unsigned *clocks) {
    const struct gpu *gpu;
    nvmlReturn_t result = device_gpu(device, &gpu);
    if (result != NVML_SUCCESS) return result;
    if (memory != memory_clock()) return NVML_ERROR_NOT_FOUND;
    return count ? listed(count, clocks, fastest(), slowest(), STEP) : NVML_ERROR_INVALID_ARGUMENT;
}

static bool has_graphics(unsigned clock) {
    return clock >= slowest() && clock <= fastest() && (fastest() - clock) % STEP == 0;
}

EXPORT nvmlReturn_t nvmlDeviceSetApplicationsClocks(nvmlDevice_t device, unsigned memory, unsigned graphics) {
    struct settings now;
    nvmlReturn_t result = changing(device, &now);
    if (result != NVML_SUCCESS) return result;
    if (memory != memory_clock() || !has_graphics(graphics)) return NVML_ERROR_INVALID_ARGUMENT;
    now.application_memory = memory;
    now.application_graphics = graphics;
    return settings_keep(&now);
}

EXPORT nvmlReturn_t nvmlDeviceResetApplicationsClocks(nvmlDevice_t device) {
    struct settings now;
    nvmlReturn_t result = changing(device, &now);
    if (result != NVML_SUCCESS) return result;
    now.application_memory = now.application_graphics = 0;
    return settings_keep(&now);
}

static nvmlReturn_t lock(nvmlDevice_t device, struct span asked, bool memory, int since) {
    struct settings now;
    nvmlReturn_t result = changing(device, &now);
    if (result != NVML_SUCCESS) return result;
    if (config_number("architecture", 0) < since) return NVML_ERROR_NOT_SUPPORTED;
    *(memory ? &now.memory : &now.graphics) = asked;
    return settings_keep(&now);
}

/* The GPU takes the closest clocks that it has. */
EXPORT nvmlReturn_t nvmlDeviceSetGpuLockedClocks(nvmlDevice_t device, unsigned least, unsigned most) {
    if (least > most || most > fastest() || least < slowest()) return NVML_ERROR_INVALID_ARGUMENT;
    return lock(device, (struct span){least, most}, false, NVML_ARCH_VOLTA);
}

EXPORT nvmlReturn_t nvmlDeviceSetMemoryLockedClocks(nvmlDevice_t device, unsigned least, unsigned most) {
    if (least != memory_clock() || most != memory_clock()) return NVML_ERROR_INVALID_ARGUMENT;
    return lock(device, (struct span){least, most}, true, NVML_ARCH_AMPERE);
}

EXPORT nvmlReturn_t nvmlDeviceResetGpuLockedClocks(nvmlDevice_t device) {
    return lock(device, (struct span){0, 0}, false, NVML_ARCH_VOLTA);
}

EXPORT nvmlReturn_t nvmlDeviceResetMemoryLockedClocks(nvmlDevice_t device) {
    return lock(device, (struct span){0, 0}, true, NVML_ARCH_AMPERE);
}
