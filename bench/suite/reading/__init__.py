"""Reading events and making Arrow batches of them."""
