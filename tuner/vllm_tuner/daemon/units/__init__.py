"""What may be restarted in mode adopt: a child process, a systemd unit or a container, behind `managed.Managed`."""
