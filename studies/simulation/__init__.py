"""Simulated participants, to try a study before anybody is paid."""
