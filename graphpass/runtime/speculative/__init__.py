"""Speculative decoding with chains and trees of drafts."""
