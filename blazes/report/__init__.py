"""Renderings of one plan: for people, for programs, for graph viewers, for code hosts."""
