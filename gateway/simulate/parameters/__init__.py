"""What a config does not say about hosts, VMs and events: measured by ``spillway profile``, or given by the user."""
