"""An EC2 on this machine: moto's server, and network namespaces in which its instances' user data is really run."""
