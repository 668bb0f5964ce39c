/* Start, end, and what NVML says of the whole system. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim.h"

static int references;

bool initialized(void) { return references > 0; }

nvmlReturn_t answer_text(char *buffer, unsigned length, const char *text) {
    if (!buffer) return NVML_ERROR_INVALID_ARGUMENT;
    if (strlen(text) >= length) return NVML_ERROR_INSUFFICIENT_SIZE;
    strcpy(buffer, text);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    nvmlReturn_t driver = host_driver();
    if (driver != NVML_SUCCESS) return driver;
    if (references == 0 && !config_load()) return NVML_ERROR_UNKNOWN;
    references++;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
EXPORT nvmlReturn_t nvmlInit(void) { return nvmlInitWithFlags(0); }

EXPORT nvmlReturn_t nvmlShutdown(void) {
    if (!initialized()) return NVML_ERROR_UNINITIALIZED;
    references--;
    return NVML_SUCCESS;
}

/* The texts are NVML's own, as nvidia-smi prints them. */
EXPORT const char *nvmlErrorString(nvmlReturn_t result) {
    static const char *const texts[] = {
        "Success", "Uninitialized", "Invalid Argument", "Not Supported", "Insufficient Permissions",
        "Already Initialized", "Not Found", "Insufficient Size", "Insufficient External Power", "Driver Not Loaded",
        "Timeout", "Interrupt Request Issue", "NVML Shared Library Not Found", "Function Not Found",
        "Corrupted infoROM", "GPU is lost", "GPU requires reset",
        "The operating system has blocked the request.", "Driver/library version mismatch",
        "In use by another client", "Insufficient Memory", "No data", "VGPU ECC not supported",
        "Insufficient Resources", "Requested frequency not supported", "Argument version mismatch", "Deprecated",
        "System is not ready", "GPU not found", "Invalid state"};
    return (unsigned)result < sizeof texts / sizeof *texts ? texts[result] : "Unknown Error";
}

EXPORT nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned length) {
    return initialized() ? answer_text(version, length, own_version()) : NVML_ERROR_UNINITIALIZED;
}

/* As the real one: CUDA's major version before the driver's. Answers before nvmlInit too. */
EXPORT nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned length) {
    char text[80];
    unsigned branch = own_branch();
    snprintf(text, sizeof text, "%u.%s", branch >= 580 ? 13U : branch >= 525 ? 12U : 11U, own_version());
    return answer_text(version, length, text);
}

EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version) {
    char key[40];
    if (!version) return NVML_ERROR_INVALID_ARGUMENT;
    if (!initialized() && !config_load()) return NVML_ERROR_UNKNOWN;
    snprintf(key, sizeof key, "cuda.%u", own_branch());
    *version = (int)config_number(key, 0);
    return *version ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND;
}

EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version) { return nvmlSystemGetCudaDriverVersion(version); }

EXPORT nvmlReturn_t nvmlSystemGetProcessName(unsigned pid, char *name, unsigned length) {
    char path[64], text[256] = "";
    snprintf(path, sizeof path, "/proc/%u/cmdline", pid);
    FILE *file = fopen(path, "re");
    if (!file) return NVML_ERROR_NOT_FOUND;
    size_t got = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[got] = '\0';
    return answer_text(name, length, text);
}

EXPORT nvmlReturn_t nvmlUnitGetCount(unsigned *count) {
    if (!count) return NVML_ERROR_INVALID_ARGUMENT;
    *count = 0; /* S-class enclosures: none */
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlGetExcludedDeviceCount(unsigned *count) { return nvmlUnitGetCount(count); }
