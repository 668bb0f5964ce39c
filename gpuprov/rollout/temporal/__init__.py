"""Roll-outs on Temporal: a server that stores the events, and a worker at each site. Needs the extra `fleet`."""
