"""An EC2 on this machine: moto's server, and network namespaces that really run the instances' user data."""
