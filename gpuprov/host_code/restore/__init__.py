"""Puts settings back to their values before gpuprov set them."""
