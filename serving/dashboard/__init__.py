"""The dashboard: pages about models, pools, events and the platform, and the actions of the command as forms."""
