"""Engine hosts: how the gateway launches, finds, enrols, links and watches them."""
