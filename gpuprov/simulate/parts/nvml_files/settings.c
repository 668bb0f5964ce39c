/* ECC mode, power limit, application clocks and locked clocks of a GPU, and how long each lasts.
   https://docs.nvidia.com/deploy/nvml-api/api/group__nvmlDeviceCommands.html */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "settings.h"

#define FOLDER "/var/lib/gpuprov-sim/settings"

static const char *file_of(char path[PATH_SIZE], unsigned gpu, const char *more) {
    char name[64];
    snprintf(name, sizeof name, FOLDER "/%u%s", gpu, more);
    return host_path(path, name);
}

/* Lines: boot MARKER | driver MARKER | ecc CURRENT PENDING | power MW | application MEMORY GRAPHICS | graphics LEAST MOST | memory ... */
static void parse(FILE *file, struct settings *found, char boot[128], char driver[128]) {
    char line[256];
    unsigned one, other;
    while (fgets(line, sizeof line, file)) {
        if (sscanf(line, "boot %127s", boot) == 1 || sscanf(line, "driver %127s", driver) == 1) continue;
        if (sscanf(line, "ecc %u %u", &one, &other) == 2) found->ecc = one, found->ecc_pending = other;
        if (sscanf(line, "power %u", &one) == 1) found->power_mw = one;
        if (sscanf(line, "application %u %u", &one, &other) == 2)
            found->application_memory = one, found->application_graphics = other;
        if (sscanf(line, "graphics %u %u", &one, &other) == 2) found->graphics = (struct span){one, other};
        if (sscanf(line, "memory %u %u", &one, &other) == 2) found->memory = (struct span){one, other};
    }
}

static struct settings untouched(unsigned gpu) {
    bool ecc = config_number("ecc", 0) > 0;
    return (struct settings){.gpu = gpu, .ecc = ecc, .ecc_pending = ecc};
}

/* A boot brings the pending ECC mode into force; with it, and with a new loading of the driver, all else is forgotten. */
struct settings settings_of(unsigned gpu) {
    char path[PATH_SIZE], boot[128] = "", driver[128] = "", now[128];
    struct settings found = untouched(gpu), fresh;
    FILE *file = fopen(file_of(path, gpu, ""), "re");
    if (!file) return found;
    parse(file, &found, boot, driver);
    fclose(file);
    host_boot(now, sizeof now);
    if (strcmp(boot, now)) found.ecc = found.ecc_pending;
    host_boot_marker(now, sizeof now);
    if (!strcmp(driver, now)) return found;
    fresh = untouched(gpu);
    fresh.ecc = found.ecc;
    fresh.ecc_pending = found.ecc_pending;
    return fresh;
}

nvmlReturn_t settings_keep(const struct settings *settings) {
    char path[PATH_SIZE], partial[PATH_SIZE], boot[128], driver[128];
    mkdir(host_path(path, FOLDER), 0755);
    FILE *file = fopen(file_of(partial, settings->gpu, ".new"), "we");
    if (!file) return NVML_ERROR_UNKNOWN;
    host_boot(boot, sizeof boot);
    host_boot_marker(driver, sizeof driver);
    fprintf(file, "boot %s\ndriver %s\necc %d %d\npower %u\napplication %u %u\ngraphics %u %u\nmemory %u %u\n", boot, driver,
            settings->ecc, settings->ecc_pending, settings->power_mw, settings->application_memory,
            settings->application_graphics, settings->graphics.least, settings->graphics.most, settings->memory.least,
            settings->memory.most);
    bool good = fclose(file) == 0 && rename(partial, file_of(path, settings->gpu, "")) == 0;
    return good ? NVML_SUCCESS : NVML_ERROR_UNKNOWN;
}

void settings_forget(unsigned gpu) {
    struct settings found = settings_of(gpu), fresh = untouched(gpu);
    fresh.ecc = found.ecc;
    fresh.ecc_pending = found.ecc_pending;
    settings_keep(&fresh);
}

unsigned settings_held(unsigned clock, struct span lock) {
    if (!lock.most) return clock;
    return clock < lock.least ? lock.least : clock > lock.most ? lock.most : clock;
}

/* Power, drawn and limited, as nvidia-smi 535 and newer ask for it; of the scopes only the GPU's (0). */
bool settings_field(unsigned gpu, unsigned field, unsigned scope, unsigned *answer) {
    enum { AVERAGE = 185, INSTANT, LEAST, MOST, DEFAULT, ENFORCED, REQUESTED = 192 };
    long whole = config_number("power_limit_mw", -1);
    unsigned set = settings_of(gpu).power_mw;
    if (scope || whole < 0) return false;
    if (field == AVERAGE || field == INSTANT) return *answer = (unsigned)config_number("power_idle_mw", 0), true;
    if (field == LEAST) return *answer = (unsigned)config_number("power_min_mw", 0), true;
    if (field == MOST || field == DEFAULT) return *answer = (unsigned)whole, true;
    if (field == ENFORCED || field == REQUESTED) {
        *answer = set ? set : (unsigned)whole;
        if (field == ENFORCED && host_fault("gpu-power-held", gpu)) *answer /= 2;
        return true;
    }
    return false;
}
