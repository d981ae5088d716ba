"""Participants that are no people, to try a study before anybody is paid."""
