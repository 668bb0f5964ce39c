/* Inside of the stand-in libnvidia-ml.so.1 of gpuprov's simulated GPU hosts. Everything it says is simulated. */
#ifndef GPUPROV_SIM_H
#define GPUPROV_SIM_H

#include <stdbool.h>
#include <stddef.h>

#include "abi.h"

#define EXPORT __attribute__((visibility("default")))
#define MAX_GPUS 8
#define MAX_PROFILES 18 /* NVML_GPU_INSTANCE_PROFILE_COUNT */
#define MAX_GI 16       /* GPU instance ids are below this */
#define MAX_CI 8
#define PATH_SIZE 512

/* One GPU: a line of /etc/gpuprov-sim/devices. */
struct gpu {
    unsigned index, domain, bus, slot, function, numa;
    unsigned pci_id, pci_subsystem; /* device in the upper, vendor in the lower half, as NVML has it */
    char name[96], uuid[80], serial[16];
};

/* One MIG profile: a line of /etc/gpuprov-sim/mig.tsv. */
struct profile {
    char name[32];
    unsigned nvml_id, smi_id, slices, size, max_count, sm, memory_mib, branch, starts[12], start_count;
    bool media; /* holds the GPU's media extensions, which exist once */
};

struct config {
    unsigned gpu_count;
    struct gpu gpus[MAX_GPUS];
    unsigned profile_count;
    struct profile profiles[MAX_PROFILES];
};

extern struct config config;

/* config.c */
bool config_load(void);
/* A number or a text of /etc/gpuprov-sim/nvml.tsv. */
long config_number(const char *key, long otherwise);
const char *config_text(const char *key, const char *otherwise);

/* own_version.c: the version in this library's own file name, as "550.163.01"; empty if there is none. */
const char *own_version(void);
unsigned own_branch(void);

/* host.c */
/* `path` below the root of the host (GPUPROV_SIM_ROOT, for tests; else /). */
const char *host_path(char buffer[PATH_SIZE], const char *path);
nvmlReturn_t host_driver(void);
bool host_fault(const char *name, unsigned index);
void host_reset_ends(const char *name, unsigned index);
bool host_gpu_stuck(unsigned index);
bool host_gpu_lost(unsigned index);
bool host_link_down(unsigned index, unsigned link);
/* Whether the process is a living persistence daemon. */
bool host_is_daemon(int pid);
bool host_persistence(unsigned index);
nvmlReturn_t host_set_persistence(unsigned index, bool on);
void host_boot(char *buffer, size_t size);
void host_boot_marker(char *buffer, size_t size);
bool host_is_root(void);

/* clients.c: processes that have a device file open, but for this one and the persistence daemon. */
/* How many; the first `room` of them. */
unsigned clients_of(const char *device, unsigned pids[], unsigned room);
bool host_gpu_has_clients(unsigned index);
bool gi_has_clients(unsigned gpu, unsigned gi);
bool ci_has_clients(unsigned gpu, unsigned gi, unsigned ci);

/* capabilities.c: /proc/driver/nvidia/capabilities and /dev/nvidia-caps. */
#define CAP_OF_GI (-1)
/* The device file of a compute instance; CAP_OF_GI: that of its GPU instance. */
void cap_path(char *buffer, size_t size, unsigned gpu, unsigned gi, int ci);
struct mig;
/* As the driver shows them for this state; nothing on a host that shows none. */
void caps_show(const struct mig *mig);

/* compute_mode.c */
void compute_mode_forget(unsigned gpu);

/* reset.c, processes.c: entries of the export table. */
struct process;
nvmlReturn_t reset_is_primary(nvmlDevice_t device, unsigned *is_primary);
nvmlReturn_t reset_fabric(unsigned *state);
nvmlReturn_t reset_group_make(void **group, const nvmlDevice_t *devices, unsigned count);
nvmlReturn_t reset_group_list(void *group, char *addresses[], unsigned *count);
nvmlReturn_t reset_group_free(void *group);
nvmlReturn_t reset_devices(unsigned count, const nvmlDevice_t *devices, nvmlReturn_t *results, unsigned *failed);
nvmlReturn_t processes_shown(nvmlDevice_t device, unsigned *count, struct process *shown);
nvmlReturn_t no_processes(nvmlDevice_t device, unsigned *count);

/* system.c */
bool initialized(void);
nvmlReturn_t answer_text(char *buffer, unsigned length, const char *text);

/* device.c: handles. A device handle is a GPU or a MIG device. */
nvmlReturn_t device_gpu(nvmlDevice_t device, const struct gpu **gpu); /* a GPU only */
nvmlReturn_t device_any(nvmlDevice_t device, const struct gpu **gpu); /* the GPU, or that of a MIG device */
nvmlDevice_t device_handle(unsigned gpu);
/* False where the handle is that of a GPU. */
bool device_is_mig(nvmlDevice_t device, unsigned *gpu, unsigned *gi, unsigned *ci);
nvmlDevice_t device_mig_handle(unsigned gpu, unsigned gi, unsigned ci);

/* mig_state.c: what MIG holds on one GPU. Only between mig_open and mig_close; `save` writes it back. */
struct compute_instance {
    bool used;
    unsigned profile, start, size;
    char uuid[48];
};
struct gpu_instance {
    bool used;
    unsigned profile, start; /* NVML profile number */
    struct compute_instance ci[MAX_CI];
};
struct mig {
    unsigned gpu;
    bool current, pending;
    struct gpu_instance gi[MAX_GI];
    int lock;
};
nvmlReturn_t mig_open(unsigned gpu, bool write, struct mig *mig);
nvmlReturn_t mig_close(struct mig *mig, bool save);
bool mig_capable(void);
/* No instances, and the mode as it was asked for: what a reset of the GPU leaves. */
void mig_reset(struct mig *mig);

/* mig_placement.c */
const struct profile *profile_by_nvml_id(unsigned id);
const struct profile *profile_by_smi_id(unsigned id);
unsigned gi_id(const struct profile *profile, unsigned start);
bool gi_fits(const struct mig *mig, const struct profile *profile, unsigned start);
/* Where the driver puts one more instance of the profile; false if nowhere. */
bool gi_choose(const struct mig *mig, const struct profile *profile, unsigned *start);
unsigned gi_capacity(const struct mig *mig, const struct profile *profile);

/* mig_compute_profiles.c */
unsigned ci_slices(unsigned ci_profile);
unsigned ci_count(const struct profile *gi, unsigned ci_profile);
bool ci_choose(const struct gpu_instance *gi, const struct profile *profile, unsigned ci_profile, unsigned *start);
bool ci_fits(const struct gpu_instance *gi, const struct profile *profile, unsigned start, unsigned size);
void ci_name(char *buffer, size_t size, const struct profile *gi, unsigned ci_profile);

#endif
