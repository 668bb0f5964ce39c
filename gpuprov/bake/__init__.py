"""Images: a spec brought about as far as files go, and the first boot that finishes and proves it on each machine."""
