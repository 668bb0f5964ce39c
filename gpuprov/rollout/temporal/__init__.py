"""Roll-outs on Temporal: a server that keeps what has happened, and a worker at each site. Needs the extra `fleet`."""
