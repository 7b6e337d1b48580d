"""Where blocks of KV lie besides the device."""
