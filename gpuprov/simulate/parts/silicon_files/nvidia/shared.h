/* SPDX-License-Identifier: MIT */
/* What the stand-in modules call in each other, so that they depend on each other as NVIDIA's do. */
#ifndef GPUPROV_SHARED_H
#define GPUPROV_SHARED_H

int nvidia_get_rm_ops(void);
int nvKmsKapiGetFunctionsTable(void);

#endif
