"""Replaying recorded sessions through any set of layers, against the practice server, and measuring it."""
