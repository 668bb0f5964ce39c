"""GPUs and links as they are wired and divided: `gpuprov topology` and `gpuprov mig`."""
