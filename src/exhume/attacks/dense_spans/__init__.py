"""The attack on what the dense layers behind convolutions read."""
