"""Tests on a simulated Ray cluster, which lives as long as this package is tested."""
