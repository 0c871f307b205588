"""Ordering: the recorded order of an unreplicated component (OR-8)."""
