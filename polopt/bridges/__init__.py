"""Bridges that run polopt's parts inside other trainers."""
