/* Reads what the host shall look like: /etc/gpuprov-sim/{devices,nvml.tsv,mig.tsv}, written by gpuprov. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim.h"

#define MAX_COLUMNS 16
#define MAX_SETTINGS 128
#define LINE_SIZE 1024

struct config config;
static struct {
    char key[40], value[96];
} settings[MAX_SETTINGS];
static unsigned setting_count;

static void copy(char *to, size_t size, const char *from) { snprintf(to, size, "%s", from); }

static unsigned split(char *line, char *columns[MAX_COLUMNS]) {
    unsigned count = 0;
    line[strcspn(line, "\n")] = '\0';
    while (count < MAX_COLUMNS) {
        columns[count++] = line;
        char *tab = strchr(line, '\t');
        if (!tab) break;
        *tab = '\0';
        line = tab + 1;
    }
    return count;
}

/* role index address id subsystem class numa name uuid vpd */
static void add_gpu(char *columns[], unsigned count) {
    unsigned vendor, device;
    if (count < 9 || strcmp(columns[0], "gpu") || config.gpu_count == MAX_GPUS) return;
    struct gpu *gpu = &config.gpus[config.gpu_count];
    gpu->index = config.gpu_count;
    if (sscanf(columns[2], "%x:%x:%x.%x", &gpu->domain, &gpu->bus, &gpu->slot, &gpu->function) != 4) return;
    if (sscanf(columns[3], "%x:%x", &vendor, &device) != 2) return;
    gpu->pci_id = device << 16 | vendor;
    if (sscanf(columns[4], "%x:%x", &vendor, &device) != 2) return;
    gpu->pci_subsystem = device << 16 | vendor;
    gpu->numa = (unsigned)atoi(columns[6]);
    copy(gpu->name, sizeof gpu->name, columns[7]);
    copy(gpu->uuid, sizeof gpu->uuid, columns[8]);
    snprintf(gpu->serial, sizeof gpu->serial, "16500000000%02u", gpu->index);
    config.gpu_count++;
}

static void add_setting(char *columns[], unsigned count) {
    if (count < 2 || setting_count == MAX_SETTINGS) return;
    copy(settings[setting_count].key, sizeof settings[0].key, columns[0]);
    copy(settings[setting_count].value, sizeof settings[0].value, columns[1]);
    setting_count++;
}

/* name nvml-id smi-id slices size max-count sm memory-mib branch media starts(comma-separated) */
static void add_profile(char *columns[], unsigned count) {
    if (count < 11 || config.profile_count == MAX_PROFILES) return;
    struct profile *made = &config.profiles[config.profile_count++];
    unsigned *numbers[] = {&made->nvml_id, &made->smi_id, &made->slices, &made->size,
                           &made->max_count, &made->sm, &made->memory_mib, &made->branch};
    copy(made->name, sizeof made->name, columns[0]);
    for (unsigned i = 0; i < sizeof numbers / sizeof *numbers; i++) *numbers[i] = (unsigned)atoi(columns[1 + i]);
    made->media = atoi(columns[9]) != 0;
    for (char *at = columns[10]; at && made->start_count < 12; at = strchr(at, ',')) {
        if (*at == ',') at++;
        made->starts[made->start_count++] = (unsigned)atoi(at);
    }
    if (made->branch > own_branch()) config.profile_count--; /* this driver does not know it yet */
}

static bool read_table(const char *path, void (*add)(char *columns[], unsigned count)) {
    char name[PATH_SIZE], line[LINE_SIZE], *columns[MAX_COLUMNS];
    FILE *file = fopen(host_path(name, path), "re");
    if (!file) return false;
    while (fgets(line, sizeof line, file))
        if (*line != '#' && *line != '\n') add(columns, split(line, columns));
    fclose(file);
    return true;
}

bool config_load(void) {
    memset(&config, 0, sizeof config);
    setting_count = 0;
    read_table("/etc/gpuprov-sim/mig.tsv", add_profile); /* absent: the GPU has no MIG */
    return read_table("/etc/gpuprov-sim/nvml.tsv", add_setting) && read_table("/etc/gpuprov-sim/devices", add_gpu);
}

const char *config_text(const char *key, const char *otherwise) {
    for (unsigned i = 0; i < setting_count; i++)
        if (!strcmp(settings[i].key, key)) return settings[i].value;
    return otherwise;
}

long config_number(const char *key, long otherwise) {
    const char *value = config_text(key, NULL);
    return value ? atol(value) : otherwise;
}
