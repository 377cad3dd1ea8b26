"""The control plane of a deployment: its functions, and what invokes them."""
