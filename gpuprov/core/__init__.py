"""The base of everything else: errors, the terminal, documents and files read within limits, text made safe to show."""
