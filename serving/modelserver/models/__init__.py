"""Many models in one server: loaded when they are asked for, unloaded when others need their memory."""
