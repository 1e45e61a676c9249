"""What commands are asked for: one frozen model per command, from which its options, files and printed lines come."""
