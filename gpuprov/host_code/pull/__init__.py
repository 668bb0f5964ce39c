"""The puller: a host fetches its signed bundle, judges it, and verifies or applies itself.

A zip archive of this package is installed on hosts by cloud-init, before anything else of gpuprov: it uses the standard
library and ssh-keygen. Nothing in a bundle is unpacked or run before signature, format, host, time and serial were
checked.
"""
