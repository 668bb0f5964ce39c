"""An inventory's hosts with their specs, which of them come next, and how they leave their scheduler."""
