/* MIG's state on one GPU, in a text file that a lock guards: concurrent clients see one truth.
   Instances never survive a boot; the mode survives it on Ampere (it is in the InfoROM) and on nothing newer.
   https://docs.nvidia.com/datacenter/tesla/mig-user-guide/getting-started-with-mig.html */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sim.h"

#define FOLDER "/var/lib/gpuprov-sim/mig"

bool mig_capable(void) { return config.profile_count > 0; }

/* Lines: boot MARKER | mode CURRENT PENDING | gi ID PROFILE START | ci GI ID PROFILE START UUID */
static void parse(FILE *file, struct mig *mig, char *marker) {
    char line[256], uuid[48];
    unsigned gi, id, profile, start, current, pending;
    while (fgets(line, sizeof line, file)) {
        if (sscanf(line, "boot %127s", marker) == 1) continue;
        if (sscanf(line, "mode %u %u", &current, &pending) == 2) {
            mig->current = current;
            mig->pending = pending;
        } else if (sscanf(line, "gi %u %u %u", &gi, &profile, &start) == 3 && gi < MAX_GI) {
            mig->gi[gi] = (struct gpu_instance){.used = true, .profile = profile, .start = start};
        } else if (sscanf(line, "ci %u %u %u %u %47s", &gi, &id, &profile, &start, uuid) == 5 && gi < MAX_GI && id < MAX_CI) {
            struct compute_instance *ci = &mig->gi[gi].ci[id];
            *ci = (struct compute_instance){.used = true, .profile = profile, .start = start, .size = ci_slices(profile)};
            strcpy(ci->uuid, uuid);
        }
    }
}

/* What is left of the state after a boot. */
static void booted(struct mig *mig) {
    if (config_number("architecture", 0) != NVML_ARCH_AMPERE) mig->pending = false;
    mig_reset(mig);
}

void mig_reset(struct mig *mig) {
    memset(mig->gi, 0, sizeof mig->gi);
    mig->current = mig->pending;
}

static int lock(unsigned gpu, bool write) {
    char path[PATH_SIZE], name[64];
    if (write) mkdir(host_path(path, FOLDER), 0755);
    snprintf(name, sizeof name, FOLDER "/%u.lock", gpu);
    int file = open(host_path(path, name), write ? O_RDWR | O_CREAT | O_CLOEXEC : O_RDONLY | O_CLOEXEC, 0644);
    if (file >= 0) flock(file, write ? LOCK_EX : LOCK_SH);
    return file;
}

nvmlReturn_t mig_open(unsigned gpu, bool write, struct mig *mig) {
    char path[PATH_SIZE], name[64], marker[128] = "", now[128];
    memset(mig, 0, sizeof *mig);
    mig->gpu = gpu;
    mig->lock = -1;
    if (!mig_capable()) return NVML_ERROR_NOT_SUPPORTED;
    if (write && !host_is_root()) return NVML_ERROR_NO_PERMISSION;
    mig->lock = lock(gpu, write);
    if (mig->lock < 0 && (write || errno != ENOENT)) return NVML_ERROR_UNKNOWN;
    snprintf(name, sizeof name, FOLDER "/%u", gpu);
    FILE *file = fopen(host_path(path, name), "re");
    if (!file) return NVML_SUCCESS; /* never touched: MIG is off */
    parse(file, mig, marker);
    fclose(file);
    host_boot_marker(now, sizeof now);
    if (strcmp(marker, now)) booted(mig);
    return NVML_SUCCESS;
}

static bool write_all(const struct mig *mig, FILE *file) {
    char now[128];
    host_boot_marker(now, sizeof now);
    fprintf(file, "boot %s\nmode %d %d\n", now, mig->current, mig->pending);
    for (unsigned gi = 0; gi < MAX_GI; gi++) {
        const struct gpu_instance *instance = &mig->gi[gi];
        if (!instance->used) continue;
        fprintf(file, "gi %u %u %u\n", gi, instance->profile, instance->start);
        for (unsigned id = 0; id < MAX_CI; id++) {
            const struct compute_instance *ci = &instance->ci[id];
            if (ci->used) fprintf(file, "ci %u %u %u %u %s\n", gi, id, ci->profile, ci->start, ci->uuid);
        }
    }
    return !ferror(file);
}

static bool save_file(const struct mig *mig) {
    char path[PATH_SIZE], partial[PATH_SIZE], name[64];
    snprintf(name, sizeof name, FOLDER "/%u", mig->gpu);
    host_path(path, name);
    snprintf(name, sizeof name, FOLDER "/%u.new", mig->gpu);
    FILE *file = fopen(host_path(partial, name), "we");
    if (!file) return false;
    bool good = write_all(mig, file);
    return fclose(file) == 0 && good && rename(partial, path) == 0;
}

nvmlReturn_t mig_close(struct mig *mig, bool save) {
    bool good = !save || save_file(mig);
    if (save && good) caps_show(mig);
    if (mig->lock >= 0) close(mig->lock);
    mig->lock = -1;
    return good ? NVML_SUCCESS : NVML_ERROR_UNKNOWN;
}
