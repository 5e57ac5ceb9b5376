"""Objectives and credit for single-turn language policies."""
