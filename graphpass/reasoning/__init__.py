"""Why a cache is called what it is called: the rules that were tried, its way through the graph, who reads it."""

from graphpass.reasoning.attempts import Attempt, attempts_at
from graphpass.reasoning.cache import Reader, Reasoning, find_cache, reason_about

__all__ = ["Attempt", "Reader", "Reasoning", "attempts_at", "find_cache", "reason_about"]
