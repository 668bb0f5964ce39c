"""The puller: a host fetches its signed bundle, judges it, and verifies or applies itself.

A zip archive of this package goes to hosts by cloud-init, before anything else of gpuprov is there: it uses the standard library and
ssh-keygen. Nothing of a bundle is unpacked or run before signature, format, host, time and serial were judged.
"""
