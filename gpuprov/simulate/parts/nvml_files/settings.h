/* settings.c: what is set on one GPU, in the numbers that NVML has; 0: the GPU's own. */
#ifndef GPUPROV_SETTINGS_H
#define GPUPROV_SETTINGS_H

#include "sim.h"

struct span {
    unsigned least, most;
};
struct settings {
    unsigned gpu;
    bool ecc, ecc_pending; /* ecc_pending is in the GPU's InfoROM: it outlives everything, and is in force after a boot */
    unsigned power_mw, application_memory, application_graphics;
    struct span graphics, memory; /* locked */
};
struct settings settings_of(unsigned gpu);
nvmlReturn_t settings_keep(const struct settings *settings);
/* What a reset of the GPU leaves, and a driver that lets go of it. */
void settings_forget(unsigned gpu);
/* The current clock of an idle GPU with this clock: held up, or down, by a lock. */
unsigned settings_held(unsigned clock, struct span lock);
/* A field of nvmlDeviceGetFieldValues; false where it is none of these. */
bool settings_field(unsigned gpu, unsigned field, unsigned scope, unsigned *answer);

#endif
