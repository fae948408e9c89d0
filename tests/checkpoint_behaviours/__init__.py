"""What PyTorch's own tests assert of activation checkpointing, as behaviours of a model with Tidetape. README.md lists them."""
