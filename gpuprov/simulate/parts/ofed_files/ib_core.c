// SPDX-License-Identifier: GPL-2.0
/* A stand-in of gpuprov's simulated hosts for the ib_core of NVIDIA's OFED: the symbols of peer memory, and nothing behind them. */
#include <linux/module.h>

void *ib_register_peer_memory_client(const void *client, void **invalidate);
void ib_unregister_peer_memory_client(void *handle);

void *ib_register_peer_memory_client(const void *client, void **invalidate)
{
	return NULL;
}
EXPORT_SYMBOL(ib_register_peer_memory_client);

void ib_unregister_peer_memory_client(void *handle)
{
}
EXPORT_SYMBOL(ib_unregister_peer_memory_client);

MODULE_DESCRIPTION("gpuprov stand-in for OFED's ib_core");
MODULE_VERSION(OFED_VERSION);
MODULE_LICENSE("GPL");
