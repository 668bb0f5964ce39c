"""One host on one page, for a ticket: what it is, its verdict with causes and fixes, wiring, what changed, and its
kernel log."""
