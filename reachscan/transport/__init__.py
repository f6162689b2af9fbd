"""Processes elsewhere: reached through a shell on their machine, in a container or on a device."""
