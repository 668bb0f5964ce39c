"""What everything else stands on: errors, the terminal, documents and files read within limits, text made safe to show."""
