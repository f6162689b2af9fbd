"""Processes elsewhere, reached through a shell: on a machine, in a container or on a device."""
