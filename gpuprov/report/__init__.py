"""Results as text, JSON, JUnit XML and HTML."""
