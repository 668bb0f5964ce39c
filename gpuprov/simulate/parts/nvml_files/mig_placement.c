/* Which place the driver gives a GPU instance. The profiles and their placements come from gpuprov's catalogue.

   The rule is the one that explains what the MIG guide and public logs print: an instance goes where the smallest free
   aligned block can hold it. On an empty A100, seven 1g get ids 13 11 12 7 8 9 10, and 3g after 1g, 1g, 2g has no place. */
#include "sim.h"

#define GRID 12

const struct profile *profile_by_nvml_id(unsigned id) {
    for (unsigned i = 0; i < config.profile_count; i++)
        if (config.profiles[i].nvml_id == id) return &config.profiles[i];
    return NULL;
}

const struct profile *profile_by_smi_id(unsigned id) {
    for (unsigned i = 0; i < config.profile_count; i++)
        if (config.profiles[i].smi_id == id) return &config.profiles[i];
    return NULL;
}

static unsigned grid(void) {
    unsigned widest = 0;
    for (unsigned i = 0; i < config.profile_count; i++)
        for (unsigned at = 0; at < config.profiles[i].start_count; at++) {
            unsigned end = config.profiles[i].starts[at] + config.profiles[i].size;
            if (end > widest) widest = end;
        }
    return widest;
}

/* Instances are numbered like the nodes of a tree that halves the GPU: 0; 1 2; 3 4 5 6; 7 ... */
unsigned gi_id(const struct profile *profile, unsigned start) {
    return grid() / profile->size - 1 + start / profile->size;
}

static void occupied(const struct mig *mig, bool taken[GRID]) {
    for (unsigned id = 0; id < MAX_GI; id++) {
        const struct profile *held = mig->gi[id].used ? profile_by_nvml_id(mig->gi[id].profile) : NULL;
        for (unsigned at = 0; held && at < held->size; at++) taken[mig->gi[id].start + at] = true;
    }
}

/* Memory slices beside which there is a compute slice: those that the smallest profile can have. */
static void usable(bool cells[GRID]) {
    const struct profile *least = &config.profiles[0];
    for (unsigned i = 1; i < config.profile_count; i++)
        if (config.profiles[i].size < least->size) least = &config.profiles[i];
    for (unsigned at = 0; at < least->start_count; at++)
        for (unsigned cell = 0; cell < least->size; cell++) cells[least->starts[at] + cell] = true;
}

static bool limits_allow(const struct mig *mig, const struct profile *profile) {
    unsigned same = 0, slices = profile->slices, most = 0;
    bool media = false;
    for (unsigned i = 0; i < config.profile_count; i++)
        if (config.profiles[i].slices > most) most = config.profiles[i].slices;
    for (unsigned id = 0; id < MAX_GI; id++) {
        const struct profile *held = mig->gi[id].used ? profile_by_nvml_id(mig->gi[id].profile) : NULL;
        if (!held) continue;
        same += held == profile;
        slices += held->slices;
        media |= held->media;
    }
    return same < profile->max_count && slices <= most && !(media && profile->media);
}

bool gi_fits(const struct mig *mig, const struct profile *profile, unsigned start) {
    bool taken[GRID] = {false}, offered = false;
    for (unsigned i = 0; i < profile->start_count; i++) offered |= profile->starts[i] == start;
    if (!offered || !limits_allow(mig, profile)) return false;
    occupied(mig, taken);
    for (unsigned at = start; at < start + profile->size; at++)
        if (taken[at]) return false;
    return true;
}

/* Usable slices of the largest free aligned block around the placement: the less, the less is broken up. */
static unsigned cost(const bool taken[GRID], const bool cells[GRID], unsigned start, unsigned size) {
    unsigned found = 0;
    for (unsigned block = size; block <= grid(); block *= 2) {
        unsigned first = start - start % block, count = 0;
        bool whole = true;
        for (unsigned at = first; at < first + block; at++) {
            count += cells[at];
            whole &= !taken[at] && (cells[at] || block == size);
        }
        if (!whole) break;
        found = count;
    }
    return found;
}

bool gi_choose(const struct mig *mig, const struct profile *profile, unsigned *start) {
    bool taken[GRID] = {false}, cells[GRID] = {false};
    unsigned least = GRID + 1;
    occupied(mig, taken);
    usable(cells);
    for (unsigned i = 0; i < profile->start_count; i++) {
        if (!gi_fits(mig, profile, profile->starts[i])) continue;
        unsigned price = cost(taken, cells, profile->starts[i], profile->size);
        if (price >= least) continue;
        least = price;
        *start = profile->starts[i];
    }
    return least <= GRID;
}

unsigned gi_capacity(const struct mig *mig, const struct profile *profile) {
    struct mig scratch = *mig;
    unsigned count = 0, start;
    while (gi_choose(&scratch, profile, &start)) {
        scratch.gi[gi_id(profile, start)] =
            (struct gpu_instance){.used = true, .profile = profile->nvml_id, .start = start};
        count++;
    }
    return count;
}
