/* Event sets: clients make them and wait, but nothing ever happens on a simulated GPU. */
#include <stdbool.h>
#include <time.h>

#include "sim.h"

EXPORT nvmlReturn_t nvmlEventSetCreate(void **set) {
    static char only;
    if (!initialized()) return NVML_ERROR_UNINITIALIZED;
    if (!set) return NVML_ERROR_INVALID_ARGUMENT;
    *set = &only;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlEventSetFree(void *set) { return set ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT; }

EXPORT nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, unsigned long long *types) {
    const struct gpu *gpu;
    nvmlReturn_t result = device_any(device, &gpu);
    if (result == NVML_SUCCESS) *types = 0;
    return result;
}

EXPORT nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types, void *set) {
    const struct gpu *gpu;
    (void)types;
    return set ? device_any(device, &gpu) : NVML_ERROR_INVALID_ARGUMENT;
}

EXPORT nvmlReturn_t nvmlEventSetWait_v2(void *set, void *event, unsigned milliseconds) {
    struct timespec patience = {milliseconds / 1000, (long)(milliseconds % 1000) * 1000000L};
    (void)event;
    if (!set) return NVML_ERROR_INVALID_ARGUMENT;
    nanosleep(&patience, NULL);
    return NVML_ERROR_TIMEOUT;
}

EXPORT nvmlReturn_t nvmlEventSetWait(void *set, void *event, unsigned milliseconds) {
    return nvmlEventSetWait_v2(set, event, milliseconds);
}
