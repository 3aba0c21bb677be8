"""Engine hosts: how the gateway launches, finds, enrols, connects and watches them."""
