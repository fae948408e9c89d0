"""The versions of others that Tidetape is made for."""

# Its dispatch keys and its saved-tensor hooks are what the agent was compiled against and checked with.
SUPPORTED_TORCH = "2.14.1"
