"""Dense ids for keys: interners over 64-bit words and over bytes."""
